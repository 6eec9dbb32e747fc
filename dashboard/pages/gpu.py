"""One GPU."""

from dashboard.device.gpu_page import draw

draw()
