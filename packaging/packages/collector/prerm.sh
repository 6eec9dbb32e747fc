#!/bin/sh
# Before a removal (deb: remove; rpm: 0) or an upgrade (deb: upgrade; rpm: 1), which stops nothing.
set -e
case "$1" in
remove | deconfigure | 0)
    if [ -d /run/systemd/system ]; then
        systemctl disable --now gpuvigil-collector.service 2>/dev/null || true
    fi
    update-alternatives --remove gpuvigil /usr/lib/gpuvigil/collector/collector.pyz
    ;;
esac
