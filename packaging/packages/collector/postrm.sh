#!/bin/sh
# After a removal: what was configured and measured stays. Only a purge, which rpm does not have, leaves nothing.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" = purge ]; then
    rm -rf /var/lib/private/gpuvigil /var/lib/gpuvigil /run/gpuvigil
    rm -rf /etc/systemd/system/gpuvigil-collector.service.d
    rm -f /etc/systemd/system/multi-user.target.wants/gpuvigil-collector.service
    rm -f /etc/gpuvigil/collector.toml /etc/gpuvigil/collector.toml.old /etc/gpuvigil/ca.pem.old
    rm -f /etc/gpuvigil/collector-token.joining
    # What the role of Ansible keeps.
    rm -rf /etc/gpuvigil/ansible-joined /var/cache/gpuvigil
    # The hub of this machine, if there is one, has these two as well.
    [ -e /etc/gpuvigil/gpuvigil.toml ] || rm -f /etc/gpuvigil/collector-token /etc/gpuvigil/ca.pem
    # Where systemd keeps the state of users that it makes up; others may be in there.
    rmdir /etc/gpuvigil /var/lib/private /usr/lib/gpuvigil 2>/dev/null || true
fi
