# A node with one H100 (80 GB, SXM), as a machine to plan for:
#
#   memrun plan --explain --profile examples/h100-node.profile --layers 32 --width 4096 --heads 32
#
# The figures are what such a machine reaches, not what its data sheet promises; put in your own.
# memrun-profile(5) explains every line.

name             = h100-node

# Tiers. Some of the device's 80 GB is left to the driver and to libraries.
device_memory    = 76 GiB
host_memory      = 480 GiB
nvme             = 7 TB

# What the host's processors reach in their memory, if they are to run updates beside the device,
# and what its memory passes for them and for copies together.
# host_memory_bandwidth = 200 GB/s
# host_memory_shared    = 260 GB/s

# Ops: the longer of arithmetic and memory traffic, plus the cost of starting one.
compute          = 50 TFLOP/s           # fp32, which memrun computes without TF32
memory_bandwidth = 2.9 TB/s
op_overhead      = 6 us

# Links: rate, and the latency of one move. PCIe 5 x16; four drives striped.
device_to_host   = 52 GB/s, 12 us
host_to_device   = 54 GB/s, 12 us
nvme_read        = 24 GB/s, 100 us
nvme_write       = 14 GB/s, 40 us
nvme_mixed       = 26 GB/s              # reads and writes together

# Kinds of ops that reach something else: attention, and with --dtype bf16 what runs on tensor cores.
rate attention.forward       = 20 TFLOP/s
rate attention.backward      = 16 TFLOP/s
rate linear.forward.bf16     = 620 TFLOP/s
rate linear.backward.bf16    = 600 TFLOP/s
rate head.logits.bf16        = 600 TFLOP/s
rate head.gradient.bf16      = 600 TFLOP/s
rate attention.forward.bf16  = 300 TFLOP/s
rate attention.backward.bf16 = 220 TFLOP/s
