"""What is collected of network ports, and of a node as a whole."""

from .model import Measurement, table

PORT = Measurement(
    name="port",
    tags=("cluster", "node", "device", "port", "kind", "role"),
    sentence="One line per network port and tick.",
    metrics=table(
        "port",
        """
up                    | state   | infiniband ports/N/state, net operstate                | port detector, details | hardware               | - | 1 when the link is active, 0 when it is not.
enabled               | state   | phys_state, net flags and carrier                      | port detector          | sysfs-class-infiniband | - | 1 when the port is to have a link, 0 when somebody has switched it off on this node.
physical_state        | state   | infiniband ports/N/phys_state                          | details                | sysfs-class-infiniband | - | InfiniBand physical state: 5 is link up, 2 polling, 3 disabled.
speed_bits_per_second | integer | infiniband ports/N/rate, net speed                     | port detector, details | hardware               | - | Speed that the link negotiated.
receive_bytes         | counter | port_rcv_data (4-byte words), net statistics/rx_bytes  | details                | hardware               | - | Data received.
transmit_bytes        | counter | port_xmit_data (4-byte words), net statistics/tx_bytes | details                | hardware               | - | Data sent.
receive_errors        | counter | port_rcv_errors, net statistics/rx_errors              | details                | hardware               | - | Packets received with an error.
transmit_discards     | counter | port_xmit_discards, net statistics/tx_dropped          | details                | hardware               | - | Packets dropped before they were sent.
link_downed           | counter | link_downed, net carrier_down_count                    | port detector          | hardware               | - | Times the link went down.
symbol_errors         | counter | symbol_error                                           | details                | sysfs-class-infiniband | - | InfiniBand symbol errors.
""",
    ),
)

NODE = Measurement(
    name="node",
    tags=("cluster", "node"),
    sentence="One line per node and tick, lost GPU or not: the collector's own health.",
    metrics=table(
        "node",
        """
gpus_expected          | integer | the node's own history                  | status strip, node state  | nvml.h                 | - | GPUs that this node should have.
gpus_answering         | integer | the reader                              | status strip, node state  | nvml.h                 | - | GPUs that answered in this tick.
driver_answering       | state   | the reader                              | driver detector           | nvml.h                 | - | 1 when the driver answers, 0 when calls hang; absent without a driver.
driver_silent_seconds  | gauge   | the supervisor's clock                  | driver detector           | nvml.h                 | - | How long no call to the driver has come back; 0 when it answers.
reader_restarts        | counter | the supervisor                          | collector health          | hardware               | - | Reader processes started after the first.
sweep_seconds          | gauge   | the collector's clock                   | collector health          | hardware               | - | Time from the start of a sweep over all GPUs to its last answer.
spool_bytes            | integer | the spool                               | collector health          | hardware               | - | Bytes that wait on disk to be sent.
spool_oldest_seconds   | gauge   | the spool                               | collector health          | hardware               | - | Age of the oldest body that waits.
spool_writable         | state   | what was written last, or a probe       | host detector, collector health | hardware         | - | 1 when the spool's disk takes what is written to it, 0 when it is full or fails.
dropped_bodies         | counter | the spool                               | collector health          | hardware               | - | Bodies given up: no room in the spool, a torn file, or refused by the hub.
load_average           | gauge   | /proc/loadavg, 1 minute                 | details                   | hardware               | - | Runnable and uninterruptible tasks, 1-minute average.
memory_available_bytes | integer | /proc/meminfo MemAvailable              | details                   | hardware               | - | Host memory that can be had without swapping.
memory_total_bytes     | integer | /proc/meminfo MemTotal                  | details                   | hardware               | - | Host memory in all.
memory_errors_corrected   | counter | edac mc*/ce_count                    | host memory detector      | sysfs                  | - | Errors that the host's memory corrected, over all of its controllers.
memory_errors_uncorrected | counter | edac mc*/ue_count                    | host memory detector      | sysfs                  | - | Errors that the host's memory could not correct.
power_supplies_failed  | state   | hwmon in*_input, in*_alarm of PMBus supplies; power_supply online, health | host detector | sysfs | - | Power supplies that say that they failed or have no input; absent where the kernel has none.
fans_failed            | state   | hwmon fan*_fault, fan*_input, fan*_min | host detector  | sysfs                  | - | Fans that say that they failed or turn slower than their least; absent where the kernel has none.
mounts_hung            | state   | statvfs in a child with a time limit    | host detector             | hardware               | - | Mounted file systems that do not answer in time or whose handle is stale, and chosen ones that are not mounted.
space_used_share       | gauge   | statvfs, the fullest of what is watched | host detector             | hardware               | - | Of the watched file system that is fullest, the share of its blocks or inodes in use, 0 to 1.
""",
    ),
)
