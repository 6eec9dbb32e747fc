#!/bin/sh
# After an installation or an upgrade: deb calls it with `configure [OLD]`, rpm with how many are installed.
set -e
own=/usr/lib/gpuvigil/collector
update-alternatives --install /usr/bin/gpuvigil gpuvigil $own/collector.pyz 10 \
    --slave /usr/share/man/man1/gpuvigil.1.gz gpuvigil.1.gz $own/manual/gpuvigil.1.gz \
    --slave /usr/share/bash-completion/completions/gpuvigil gpuvigil.bash $own/manual/gpuvigil.bash \
    --slave /usr/share/zsh/vendor-completions/_gpuvigil gpuvigil.zsh $own/manual/_gpuvigil \
    --slave /usr/share/fish/vendor_completions.d/gpuvigil.fish gpuvigil.fish $own/manual/gpuvigil.fish
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Only what runs: the unit is enabled by `gpuvigil join`.
    systemctl try-restart gpuvigil-collector.service || true
fi
