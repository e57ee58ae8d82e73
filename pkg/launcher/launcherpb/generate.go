package launcherpb

//go:generate ./generate.sh
