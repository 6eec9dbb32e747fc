/* Which GPU is which: look-ups by index, UUID and PCI address, and the names on the board. */
#include "call.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_TEXT 128

struct address {
    unsigned int domain, bus, device;
};

static void uuid_of(int gpu, char *text) {
    value_text(gpu, VALUE_uuid, text, SHORT_TEXT);
    if (text[0] == '\0') {
        unsigned int node = (unsigned int)state_number("node", 0);
        snprintf(text, SHORT_TEXT, "GPU-%08x-0000-4000-8000-%012x", node, gpu);
    }
}

static struct address address_of(int gpu) {
    /* The PCI buses of one common eight-GPU board, which later boards repeat in a domain of their own. */
    static const unsigned int BUSES[] = {0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF};
    struct address address = {(unsigned int)gpu / 8, BUSES[gpu % 8], 0};
    char text[SHORT_TEXT];
    value_text(gpu, VALUE_pci_bus_id, text, sizeof text);
    sscanf(text, "%x:%x:%x", &address.domain, &address.bus, &address.device);
    return address;
}

static int slot_of_index(unsigned int index) {
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        if (is_present(gpu) && index-- == 0) {
            return gpu;
        }
    }
    return -1;
}

static nvmlReturn_t give_device(int gpu, const char *function, nvmlDevice_t *device) {
    TRY(begin_lookup(gpu, function));
    *device = device_of(gpu);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    wait_while_hung(-1);
    int gpu = slot_of_index(index);
    REQUIRE(gpu >= 0 && device != NULL);
    return give_device(gpu, __func__, device);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    wait_while_hung(-1);
    REQUIRE(uuid != NULL && device != NULL);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        char text[SHORT_TEXT];
        uuid_of(gpu, text);
        if (is_present(gpu) && strcmp(text, uuid) == 0) {
            return give_device(gpu, __func__, device);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    struct address wanted;
    wait_while_hung(-1);
    REQUIRE(bus_id != NULL && device != NULL);
    REQUIRE(sscanf(bus_id, "%x:%x:%x", &wanted.domain, &wanted.bus, &wanted.device) == 3);
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        struct address own = address_of(gpu);
        if (is_present(gpu) && own.domain == wanted.domain && own.bus == wanted.bus && own.device == wanted.device) {
            return give_device(gpu, __func__, device);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(index != NULL);
    *index = 0;
    for (int earlier = 0; earlier < gpu; earlier++) {
        *index += is_present(earlier) != 0;
    }
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(minor != NULL);
    char text[SHORT_TEXT];
    value_text(gpu, VALUE_minor, text, sizeof text);
    *minor = text[0] == '\0' ? (unsigned int)gpu : (unsigned int)value_number(gpu, VALUE_minor);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned int length) {
    int gpu, mig;
    char text[SHORT_TEXT];
    TRY(begin_part(device, __func__, &gpu, &mig));
    if (mig == NO_MIG) {
        uuid_of(gpu, text);
    } else {
        unsigned int node = (unsigned int)state_number("node", 0);
        snprintf(text, sizeof text, "MIG-%08x-0000-4000-8%03x-%012x", node, mig, gpu);
    }
    return give_text(text, out, length);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned int length) {
    int gpu, mig;
    char name[SHORT_TEXT], profile[SHORT_TEXT], text[2 * SHORT_TEXT + 8];
    TRY(begin_part(device, __func__, &gpu, &mig));
    value_text(gpu, VALUE_name, name, sizeof name);
    mig_text(gpu, mig, VALUE_mig_profile, profile, sizeof profile);
    snprintf(text, sizeof text, "%s MIG %s", name, profile);
    return give_text(mig == NO_MIG ? name : text, out, length);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *out, unsigned int length) {
    int gpu;
    char text[SHORT_TEXT];
    TRY(begin_device(device, __func__, &gpu));
    value_text(gpu, VALUE_serial, text, sizeof text);
    if (text[0] == '\0') {
        snprintf(text, sizeof text, "1650%05u%04d", (unsigned int)state_number("node", 0), gpu);
    }
    return give_text(text, out, length);
}

#define TEXT_GETTER(function, key)                                                              \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int length) { \
        int gpu;                                                                                \
        char text[SHORT_TEXT];                                                                  \
        TRY(begin_device(device, __func__, &gpu));                                              \
        value_text(gpu, VALUE_##key, text, sizeof text);                                        \
        return give_text(text, out, length);                                                    \
    }

TEXT_GETTER(nvmlDeviceGetBoardPartNumber, board_part_number)
TEXT_GETTER(nvmlDeviceGetVbiosVersion, vbios_version)
TEXT_GETTER(nvmlDeviceGetInforomImageVersion, inforom_version)

/* The caller's buffer is of a fixed size here. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
    enum { NVML_GSP_FIRMWARE_VERSION_BUF_SIZE = 64 };
    int gpu;
    char text[SHORT_TEXT];
    TRY(begin_device(device, __func__, &gpu));
    value_text(gpu, VALUE_gsp_firmware_version, text, sizeof text);
    return give_text(text, out, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}

static void write_address(struct address address, nvmlPciInfo_t *pci) {
    memset(pci, 0, sizeof *pci);
    pci->domain = address.domain;
    pci->bus = address.bus;
    pci->device = address.device;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", address.domain & 0xFFFF,
             address.bus & 0xFF, address.device & 0xFF);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", address.domain, address.bus, address.device);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(pci != NULL);
    write_address(address_of(gpu), pci);
    pci->pciDeviceId = (unsigned int)value_number(gpu, VALUE_pci_device_id);
    pci->pciSubSystemId = (unsigned int)value_number(gpu, VALUE_pci_subsystem_id);
    return NVML_SUCCESS;
}

/* Each link of a GPU goes to one of four switches, as on an eight-GPU board. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                             nvmlPciInfo_t *pci) {
    int gpu;
    TRY(begin_device(device, __func__, &gpu));
    REQUIRE(pci != NULL && link < (unsigned int)value_number(gpu, VALUE_links));
    write_address((struct address){(unsigned int)gpu / 8, 7 + link % 4, 0}, pci);
    pci->pciDeviceId = 0x22A310DE;
    return NVML_SUCCESS;
}
