#!/bin/sh
# Makes a Debian package of what `make install` installs: deb.sh STAGE VERSION FILE. The files of STAGE stand where they
# are to stand, under /usr and /etc. dpkg-deb is on every Debian, so nothing has to be built for it.
set -eu

stage=$1 version=$2 file=$3
control=$stage/DEBIAN
mkdir -p "$control"

kib=$(du -sk --exclude=DEBIAN "$stage" | cut -f1)
cat >"$control/control" <<END
Package: lockwarden
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The lockwarden developers <lockwarden@localhost>
Installed-Size: $kib
Depends: adduser, libc6 (>= 2.34), libgcc-s1
Recommends: ca-certificates, tzdata
Suggests: redis-server
Section: database
Priority: optional
Description: Redis-compatible proxy that governs locks
 Put in front of Redis by changing one address, it finds the locks of legacy
 applications, and gives them owners, fencing tokens and bounded TTLs. Every
 other command passes through untouched.
END
(cd "$stage" && find etc -type f -printf '/%p\n' | sort) >"$control/conffiles"

cat >"$control/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    # The unit asks for a user of this name, and takes this one because it is there.
    adduser --system --group --quiet --no-create-home --home /nonexistent lockwarden
    # The configuration may name passwords, so others do not read it.
    for path in /etc/lockwarden /etc/lockwarden/lockwarden.toml; do
        dpkg-statoverride --list "$path" >/dev/null || chgrp lockwarden "$path"
    done
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        # Nothing was started before: where Redis is, is for the operator to say.
        [ -z "${2:-}" ] || systemctl try-restart lockwarden.service
    fi
fi
END
cat >"$control/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now lockwarden.service
fi
END
cat >"$control/postrm" <<'END'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = purge ]; then
    # Its number may stand on files that an operator made, so the user stays where deluser is gone already.
    if command -v deluser >/dev/null; then deluser --system --quiet lockwarden || true; fi
fi
END
chmod 0755 "$control/postinst" "$control/prerm" "$control/postrm"
dpkg-deb --root-owner-group --build "$stage" "$file"
