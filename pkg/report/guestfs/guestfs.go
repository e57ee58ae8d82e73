// Package guestfs reports which image has libguestfs: virt-api says it at subresources.kubevirt.io's path guestfs, and
// `virtctl guestfs` makes pods of it. The JSON is KubeVirt's, whose virtctl reads it, too.
package guestfs

import "strings"

// name is the image's, as KubeVirt's.
const name = "libguestfs-tools"

// Info says where the image is.
type Info struct {
	// Registry, ImagePrefix and Tag or Digest are the parts of the image's name where it is called libguestfs-tools.
	Registry    string `json:"registry"`
	Tag         string `json:"tag"`
	Digest      string `json:"digest"`
	ImagePrefix string `json:"imagePrefix"`
	// GsImage is the whole name of the image; it wins over the parts.
	GsImage string `json:"gsImage"`
}

// Of returns the Info of an image; empty is none.
func Of(image string) Info { return Info{GsImage: image} }

// Image returns the name of the image, empty where it is not said.
func (i Info) Image() string {
	if i.GsImage != "" {
		return i.GsImage
	}
	image := i.ImagePrefix + name
	if i.Registry != "" {
		image = strings.TrimSuffix(i.Registry, "/") + "/" + image
	}
	switch {
	case i.Digest != "":
		return image + "@" + i.Digest
	case i.Tag != "":
		return image + ":" + i.Tag
	}
	return ""
}
