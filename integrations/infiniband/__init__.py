"""`gpuvigil infiniband`: reads the switches of one InfiniBand fabric with the fabric's own tools."""
