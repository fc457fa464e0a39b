# A machine of round numbers, for tests that must not depend on the one that runs them.
name             = shed
device_memory    = 2 GiB
host_memory      = 4 GiB
nvme             = 1 GiB
compute          = 10 GFLOP/s
memory_bandwidth = 5 GB/s
op_overhead      = 2 us
device_to_host   = 5 GB/s, 5 us
host_to_device   = 5 GB/s, 5 us
nvme_read        = 1 GB/s, 100 us
nvme_write       = 500 MB/s, 100 us
nvme_mixed       = 1 GB/s
