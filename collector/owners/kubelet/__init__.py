"""The holders of GPUs that the kubelet of this node gave to its pods."""
