#!/bin/sh
# After a removal: what was configured and measured stays. Only a purge, which rpm does not have, leaves nothing.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" = purge ]; then
    rm -rf /var/lib/gpuvigil-hub /etc/systemd/system/gpuvigil@*.service.d
    rm -f /etc/systemd/system/multi-user.target.wants/gpuvigil@*.service
    cd /etc/gpuvigil 2>/dev/null || exit 0
    rm -f gpuvigil.toml service-token scheduler-token hub.pem hub.key ca.key webhook-url slack-url
    # The collector of this machine, if it has one, has these two as well.
    [ -e collector.toml ] || rm -f collector-token ca.pem
    cd /
    rmdir /etc/gpuvigil /usr/lib/gpuvigil 2>/dev/null || true
    userdel gpuvigil-hub 2>/dev/null || true
fi
