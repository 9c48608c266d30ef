"""Device, dtype, memory and attention kernels."""
