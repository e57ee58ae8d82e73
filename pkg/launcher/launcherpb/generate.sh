#!/bin/sh
# Writes the Go code of launcher.proto. protoc is Debian's (`make deps`); its plugins are pinned in
# tests/generated/tools.
set -eu
cd "$(dirname "$0")/../../.."

plugin() { go -C tests/generated/tools tool -n "$1"; }

protoc \
	--plugin="protoc-gen-go=$(plugin protoc-gen-go)" \
	--plugin="protoc-gen-go-grpc=$(plugin protoc-gen-go-grpc)" \
	--go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative \
	pkg/launcher/launcherpb/launcher.proto
