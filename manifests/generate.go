package manifests

//go:generate go -C gen run . -out ../crds
