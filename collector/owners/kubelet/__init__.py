"""Who holds a GPU, by what the kubelet of this node gave to its pods."""
