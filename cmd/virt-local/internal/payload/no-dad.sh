#!/bin/sh
# A CNI plugin that runs before the one that makes a pod's links: their IPv6 addresses are usable at once. By default the
# kernel looks for duplicates first, which holds up every pod for up to two seconds. host-local gives no address twice,
# and each pod is alone on its cable.
cat >/dev/null
case $CNI_COMMAND in
ADD)
	setting=/proc/sys/net/ipv6/conf/default/accept_dad
	if ! out=$(nsenter --net="$CNI_NETNS" sh -c "echo 0 >$setting" 2>&1); then
		out=$(printf %s "$out" | tr -cd 'A-Za-z0-9 /.,:-') # no character that JSON has to escape
		printf '{"cniVersion": "1.0.0", "code": 100, "msg": "set %s: %s"}\n' "$setting" "$out"
		exit 1
	fi
	echo '{"cniVersion": "1.0.0"}'
	;;
VERSION)
	echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}'
	;;
esac
