#!/bin/sh
# After an installation or an upgrade: deb calls it with `configure [OLD]`, rpm with how many are installed.
set -e
own=/usr/lib/gpuvigil/server
if ! getent passwd gpuvigil-hub >/dev/null; then
    useradd --system --user-group --home-dir /var/lib/gpuvigil-hub --no-create-home --shell /usr/sbin/nologin gpuvigil-hub
fi
update-alternatives --install /usr/bin/gpuvigil gpuvigil $own/bin/gpuvigil 20 \
    --slave /usr/share/man/man1/gpuvigil.1.gz gpuvigil.1.gz $own/manual/gpuvigil.1.gz \
    --slave /usr/share/bash-completion/completions/gpuvigil gpuvigil.bash $own/manual/gpuvigil.bash \
    --slave /usr/share/zsh/vendor-completions/_gpuvigil gpuvigil.zsh $own/manual/_gpuvigil \
    --slave /usr/share/fish/vendor_completions.d/gpuvigil.fish gpuvigil.fish $own/manual/gpuvigil.fish
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Only those that run: units are enabled by `gpuvigil server init`. The hub first, the others ask it.
    for name in hub analyze alert dashboard report slurm infiniband switches influxdb act; do
        systemctl try-restart "gpuvigil@$name.service" || true
    done
fi
