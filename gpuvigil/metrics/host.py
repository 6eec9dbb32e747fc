"""Metrics of network ports, and of a node as a whole."""

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
symbol_errors | counter | symbol_error; of RoCE and Ethernet ethtool rx_pcs_symbol_err_phy, rx_symbol_err_phy | port detector, details | sysfs-class-infiniband | - | Symbol errors; of RoCE and Ethernet those that FEC did not correct, since the collector first saw the port.
width_lanes | integer | infiniband ports/N/rate | port detector, details | sysfs-class-infiniband | - | Lanes that the link negotiated: 4 of `4X`.
link_recoveries | counter | link_error_recovery | port detector, details | sysfs-class-infiniband | - | Times the link recovered from an error by itself.
local_integrity_errors | counter | local_link_integrity_errors | port detector, details | sysfs-class-infiniband | - | Times errors that the port saw itself passed its threshold.
buffer_overruns | counter | excessive_buffer_overrun_errors | details | sysfs-class-infiniband | - | Times its receive buffer was overrun for longer than flow control allows.
receive_remote_errors | counter | port_rcv_remote_physical_errors | details | sysfs-class-infiniband | - | Packets received that a link further up had already marked bad.
transmit_wait_ticks | counter | port_xmit_wait; ethtool rx_priority_N_xoff.nic (ice) | congestion detector, details | sysfs-class-infiniband | - | Ticks in which there was data to send and no credit to send it; NVIDIA publishes no length of a tick. Of Intel's ice driver, the pause frames that stopped the port.
transmit_queue_bytes | integer | netlink RTM_GETQDISC, backlog of the root qdisc | congestion detector, details | linux-qdisc | - | Bytes that wait in the kernel's queue of an Ethernet interface; RDMA goes past it.
transmit_held_back | counter | netlink RTM_GETQDISC, overlimits of the root qdisc | congestion detector, details | linux-qdisc | - | Times that a traffic shaper of this node (`tc`, such as tbf or htb) made packets wait.
round_trip_delay_seconds | gauge | netlink SOCK_DIAG_BY_FAMILY, tcp_info rtt and min_rtt | congestion detector, details | linux-tcp-info | - | How much longer than its shortest a TCP round trip through an Ethernet interface takes, in the mean of the bytes sent.
receive_discards | counter | ethtool rx_discards_phy, or rx_prioN_discards, rx_queue_drop_cnt (gve); hw_counters/rx_drops (EFA), rx_roce_discards (bnxt_re) | receiver detector, details | mlx5-counters | - | Packets received and dropped for lack of a buffer in the port.
receive_pause_microseconds | counter | ethtool rx_prioN_pause_duration, or rx_global_pause_duration | congestion detector, details | mlx5-counters | - | Time for which others stopped this port by pause frames, all priorities together.
transmit_pause_microseconds | counter | ethtool tx_prioN_pause_duration, or tx_global_pause_duration | receiver detector, details | mlx5-counters | - | Time for which this port stopped others by pause frames, all priorities together.
pause_storms | counter | ethtool tx_pause_storm_warning_events + tx_pause_storm_error_events | receiver detector, details | mlx5-counters | - | Times this port stopped others for too long.
out_of_buffer | counter | hw_counters/out_of_buffer; ethtool rx_out_of_buffer, rx_no_buffers_posted | receiver detector, details | mlx5-counters | - | Packets dropped because software had posted no receive buffer.
receiver_not_ready | counter | hw_counters/rnr_nak_retry_err (mlx5), rnr_naks_rcvd (bnxt_re), RNR sent (irdma) | details | mlx5-counters | - | RDMA messages that found no receive buffer.
ecn_marked_packets | counter | hw_counters/np_ecn_marked_roce_packets (mlx5), RxECNMrkd (irdma), rx_ecn_marked_pkts (bnxt_re) | details | mlx5-counters | - | RoCE packets received that a switch marked for congestion.
cnp_sent | counter | hw_counters/np_cnp_sent (mlx5), cnpSent (irdma), tx_cnp_pkts (bnxt_re) | details | mlx5-counters | - | Congestion notifications sent.
cnp_handled | counter | hw_counters/rp_cnp_handled (mlx5), cnpHandled (irdma), rx_cnp_pkts (bnxt_re) | details | mlx5-counters | - | Congestion notifications received and obeyed.
cnp_ignored | counter | hw_counters/rp_cnp_ignored (mlx5), cnpIgnored (irdma) | congestion control detector, details | mlx5-counters | - | Congestion notifications received and not obeyed.
out_of_sequence | counter | hw_counters/out_of_sequence (mlx5) | details | mlx5-counters | - | RDMA packets received out of order: lost before, or taken another way.
retransmits | counter | hw_counters/packet_seq_err + local_ack_timeout_err + implied_nak_seq_err + roce_adp_retrans + roce_adp_retrans_to (mlx5); EFA retrans_pkts; bnxt_re, irdma | loss detector, details | mlx5-counters | - | RDMA packets, or on mlx5 occasions, that had to be sent again.
path_timeouts | counter | hw_counters/retrans_timeout_events + unresponsive_remote_events + impaired_remote_conn_events (EFA) | loss detector, details | - | - | Times that the other end of an RDMA path did not answer in time, so that the card chose another path or sent more slowly.
corrected_bits | counter | ethtool rx_corrected_bits_phy, or the sum of rx_err_lane_N_phy | port detector | mlx5-counters | - | Bits of a RoCE or Ethernet link that forward error correction (FEC) put right. A fast link always has some.
module_celsius | gauge | device/hwmon temp*_input of ModuleN | module detector, details | sysfs | - | Temperature of the cable's module, the hottest of a bond.
module_faults | counter | ethtool module_bus_stuck + module_bad_shorted + module_high_temp | module detector, details | mlx5-counters | - | Times the cable's module failed or was too hot.
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
load_average           | gauge   | /proc/loadavg, 1 minute                 | slow-GPU detector, collector health, details | hardware               | - | Runnable and uninterruptible tasks, 1-minute average.
memory_available_bytes | integer | /proc/meminfo MemAvailable              | details                   | hardware               | - | Host memory that can be had without swapping.
memory_total_bytes     | integer | /proc/meminfo MemTotal                  | details                   | hardware               | - | Host memory in all.
cpu_milliseconds          | counter | /proc/stat, all of the first line              | jobs, collector health, details | linux-iostats | - | Time of all processors together.
cpu_busy_milliseconds     | counter | /proc/stat, without idle and iowait             | jobs, details | linux-iostats | - | Time in which they ran something.
cpu_pressure_microseconds | counter | /proc/pressure/cpu, total of `some`             | jobs, slow-GPU detector, details | linux-iostats | - | Time in which a task waited for a processor; absent where the kernel does not count it.
cpu_throttled_milliseconds | counter | thermal_throttle/package_throttle_total_time_ms | host detector, slow-GPU detector, details | linux-thermal | - | Time for which heat slowed the processors down, of the package that it slowed most, counted when it ends; absent without an Intel processor and Linux 5.5.
cpu_throttles              | counter | thermal_throttle/package_throttle_count         | host detector, slow-GPU detector | linux-thermal | - | Times that heat slowed the processors down, of the package that it slowed most; absent without an Intel processor.
disk_read_bytes    | counter | /proc/diskstats, disks that are hardware           | jobs, hung job detector, details | linux-iostats | - | Bytes read from the node's own disks.
disk_write_bytes   | counter | /proc/diskstats, disks that are hardware           | jobs, hung job detector, details | linux-iostats | - | Bytes written to the node's own disks.
shared_read_bytes  | counter | /proc/self/mountstats of NFS, llite stats of Lustre | jobs, hung job detector, details | linux-iostats | - | Bytes read from file systems of the network.
shared_write_bytes | counter | /proc/self/mountstats of NFS, llite stats of Lustre | jobs, hung job detector, details | linux-iostats | - | Bytes written to file systems of the network.
memory_errors_corrected   | counter | edac mc*/ce_count                    | host memory detector      | sysfs                  | - | Errors that the host's memory corrected, over all of its controllers.
memory_errors_uncorrected | counter | edac mc*/ue_count                    | host memory detector      | sysfs                  | - | Errors that the host's memory could not correct.
power_supplies_failed  | state   | hwmon in*_input, in*_alarm of PMBus supplies; power_supply online, health | host detector | sysfs | - | Power supplies that say that they failed or have no input; absent where the kernel has none.
fans_failed            | state   | hwmon fan*_fault, fan*_input, fan*_min | host detector  | sysfs                  | - | Fans that say that they failed or turn slower than their least; absent where the kernel has none.
mounts_hung            | state   | statvfs in a child with a time limit    | host detector             | hardware               | - | Mounted file systems that do not answer in time or whose handle is stale, and chosen ones that are not mounted.
space_used_share       | gauge   | statvfs, the fullest of what is watched | host detector             | hardware               | - | Of the watched file system that is fullest, the share of its blocks or inodes in use, 0 to 1.
""",
    ),
)
