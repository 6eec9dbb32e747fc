#!/bin/sh
# Before a removal (deb: remove; rpm: 0) or an upgrade (deb: upgrade; rpm: 1), which stops nothing.
set -e
case "$1" in
remove | deconfigure | 0)
    if [ -d /run/systemd/system ]; then
        for name in report dashboard alert analyze hub; do
            systemctl disable --now "gpuvigil@$name.service" 2>/dev/null || true
        done
        systemctl stop 'gpuvigil@*.service' 2>/dev/null || true
    fi
    update-alternatives --remove gpuvigil /usr/lib/gpuvigil/server/bin/gpuvigil
    ;;
esac
