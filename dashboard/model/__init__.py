"""The model behind the pages: clusters, GPUs and ports as columns, and the facts they are made from."""
