// Package images brings container images into the nodes' containerd without a registry: archives from
// files (docker-archive or OCI layout, as tar), and the pause image, which is made here.
package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/component"
)

// Labels of the images that Load has imported. They say which archive an image is from and how many
// images that had, and so whether it needs to be imported again.
const (
	labelArchive = "virt-local/archive"
	labelCount   = "virt-local/archive-images"
	labelPinned  = "io.cri-containerd.pinned"
)

// Archive is an image archive.
type Archive struct {
	// Name is for people: the file's path.
	Name string
	// Digest is the SHA-256 of the archive as a label's value.
	Digest string
	Open   func() (io.ReadCloser, error)
	// Pinned keeps the kubelet from ever removing the images.
	Pinned bool
}

// File describes the archive in a file.
func File(path string) (Archive, error) {
	f, err := os.Open(path)
	if err != nil {
		return Archive{}, fmt.Errorf("read image archive: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return Archive{}, fmt.Errorf("read image archive %s: %w", path, err)
	}
	return Archive{
		Name: path, Digest: hex.EncodeToString(sum.Sum(nil))[:60],
		Open: func() (io.ReadCloser, error) { return os.Open(path) },
	}, nil
}

// Node is a connection to a node's containerd.
type Node struct {
	containerd *containerd.Client
	cri        cri.ImageServiceClient
	conn       *grpc.ClientConn
}

// Connect connects to the containerd behind a socket, waiting until it answers.
func Connect(ctx context.Context, socket string) (*Node, error) {
	err := component.Poll(ctx, 50*time.Millisecond, func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for containerd: %w", err)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd: %w", err)
	}
	client, err := containerd.NewWithConn(conn, containerd.WithDefaultNamespace("k8s.io"))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to containerd: %w", err)
	}
	n := &Node{client, cri.NewImageServiceClient(conn), conn}
	err = component.Poll(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		_, err := n.cri.ListImages(ctx, &cri.ListImagesRequest{})
		return err
	})
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("wait for containerd: %w", err)
	}
	return n, nil
}

// Close closes the connection.
func (n *Node) Close() error { return n.conn.Close() }

// Load imports an archive, unless its images are there, and returns the names of the images once the kubelet
// can use them, and whether it imported any.
func (n *Node) Load(ctx context.Context, a Archive) (names []string, imported bool, err error) {
	ctx = namespaces.WithNamespace(ctx, "k8s.io")
	present, err := n.containerd.ImageService().List(ctx, fmt.Sprintf("labels.%q==%q", labelArchive, a.Digest))
	if err != nil {
		return nil, false, fmt.Errorf("list images: %w", err)
	}
	if len(present) > 0 && present[0].Labels[labelCount] == strconv.Itoa(len(present)) {
		for _, img := range present {
			names = append(names, img.Name)
		}
		return names, false, nil
	}
	r, err := a.Open()
	if err != nil {
		return nil, false, fmt.Errorf("read image archive: %w", err)
	}
	defer r.Close()
	// Not the label of managed images: without it containerd's Kubernetes side makes the reference
	// by image ID that image volumes are mounted by.
	labels := map[string]string{}
	if a.Pinned {
		labels[labelPinned] = "pinned"
	}
	imgs, err := n.containerd.Import(ctx, r, containerd.WithImageLabels(labels),
		containerd.WithImageRefTranslator(ociName))
	if err != nil {
		return nil, false, fmt.Errorf("import %s: %w", a.Name, err)
	}
	if len(imgs) == 0 {
		return nil, false, fmt.Errorf("import %s: it names no image (docker-archive: RepoTags; OCI: annotation "+
			"org.opencontainers.image.ref.name with a full name)", a.Name)
	}
	for _, img := range imgs {
		image := containerd.NewImage(n.containerd, img)
		if err := image.Unpack(ctx, "overlayfs"); err != nil {
			return nil, false, fmt.Errorf("unpack %s: %w", img.Name, err)
		}
		config, err := image.Config(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("read configuration of %s: %w", img.Name, err)
		}
		if err := n.awaitCRI(ctx, img.Name, config.Digest.String()); err != nil {
			return nil, false, err
		}
		names = append(names, img.Name)
	}
	// Only now are they complete, so only now do they say so.
	for _, img := range imgs {
		img.Labels = map[string]string{labelArchive: a.Digest, labelCount: strconv.Itoa(len(imgs))}
		if _, err := n.containerd.ImageService().
			Update(ctx, img, "labels."+labelArchive, "labels."+labelCount); err != nil {
			return nil, false, fmt.Errorf("label %s: %w", img.Name, err)
		}
	}
	slices.Sort(names)
	return names, true, nil
}

// awaitCRI waits until containerd's Kubernetes side, which follows by events, knows the image.
func (n *Node) awaitCRI(ctx context.Context, name, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := component.Poll(ctx, 10*time.Millisecond, func(ctx context.Context) error {
		res, err := n.cri.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		if err != nil {
			return err
		}
		if got := res.GetImage().GetId(); got != id {
			return fmt.Errorf("it has %q, not %s", got, id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait until the kubelet can use %s: %w", name, err)
	}
	return nil
}

// ociName accepts an OCI layout's reference name when it is a whole image name, not only a tag.
func ociName(ref string) string {
	if strings.Contains(ref, "/") {
		return ref
	}
	return ""
}
