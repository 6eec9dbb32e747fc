"""The page of one GPU."""

from dashboard.device.gpu_page import draw

draw()
