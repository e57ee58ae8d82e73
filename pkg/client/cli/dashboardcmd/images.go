package dashboardcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli/backupcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/createcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/imagecmd"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// followImages feeds the page of images, once somebody has looked at it.
func (s *session) followImages(ctx context.Context, c *client.Client, w *page.World) {
	s.follow(func() {
		store.Feed(ctx, w.Images, client.Claims,
			source(c, w.Pulse, corev1.SchemeGroupVersion, client.Claims, w.Namespace), images.Row)
	})
}

// Catalogue returns the images that can be pulled to a namespace.
func (a *actions) Catalogue(ctx context.Context, namespace string) (*images.Catalogue, string, error) {
	found, shared, err := imagecmd.Catalogue(ctx, a.factory, a.client, namespace)
	if shared != nil {
		return found, shared.Error(), err
	}
	return found, "", err
}

// PullImage brings an image to a namespace.
func (a *actions) PullImage(ctx context.Context, namespace string, image *images.Image, t *page.Transfer) error {
	err := imagecmd.PullTo(ctx, a.factory, a.client, namespace, image, t, t.Note)
	return a.noted(err, "image pull", namespace+"/"+image.Ref())
}

// RemoveImage deletes the claim of the image that was shown, not another of its name.
func (a *actions) RemoveImage(ctx context.Context, image *store.Image) error {
	err := images.Unneeded(ctx, a.client, image.Namespace, image.Name)
	if err == nil {
		err = images.Remove(ctx, a.client, image.Namespace, image.Name, image.UID, false)
	}
	// An upload without an image has no Ref.
	return a.noted(err, "image rm", image.Namespace+"/"+cmp.Or(image.Ref, image.Name))
}

// CreateFromImage makes a machine whose disk is a copy of an image.
func (a *actions) CreateFromImage(ctx context.Context, vm page.ImageVM) (note string, err error) {
	say := func(text string) { note = text }
	err = createcmd.CreateFromImage(ctx, a.factory, a.client, createcmd.FromImage(vm), say)
	return note, a.noted(err, "create vm", vm.Namespace+"/"+vm.Name)
}

// OwnKey returns the file with the user's SSH key.
func (a *actions) OwnKey() (string, error) {
	file, _, err := createcmd.OwnKey()
	return file, err
}

// ExportFile returns the path of the file that an export is to write, and whether it is there.
func (a *actions) ExportFile(e page.Export) (path string, there bool, err error) {
	name := e.File
	switch name {
	case "":
		return "", false, errors.New("give one")
	case "-":
		return "", false, errors.New("a backup cannot be written to a pipe")
	}
	if below, tilde := strings.CutPrefix(name, "~"+string(filepath.Separator)); tilde { // no shell has seen it
		home, err := os.UserHomeDir()
		if err != nil {
			return "", false, fmt.Errorf("find the home directory: %w", err)
		}
		name = filepath.Join(home, below)
	}
	if err := backupcmd.CheckFile(a.factory.Program, name, sourceKind(e), e.Key.Name); err != nil {
		return "", false, err
	}
	if path, err = filepath.Abs(name); err != nil {
		return "", false, err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		info, err = os.Stat(filepath.Dir(path))
		if err == nil && !info.IsDir() {
			err = errors.New(filepath.Dir(path) + " is no directory")
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("there is no directory " + filepath.Dir(path))
		}
		return path, false, err
	case err != nil:
		return "", false, err
	case !info.Mode().IsRegular():
		return "", false, errors.New(path + " is no regular file; name one that is written anew")
	}
	return path, true, nil
}

// sourceKind returns the kind of what is exported.
func sourceKind(e page.Export) string {
	if e.Snapshot {
		return exports.KindSnapshot
	}
	return exports.KindVM
}

// sameSource returns an error unless what is exported is what was shown.
func (a *actions) sameSource(ctx context.Context, e page.Export) error {
	if e.Snapshot {
		return a.sameSnapshot(ctx, e.Key, e.UID)
	}
	return a.same(ctx, lifecycle.Target{Namespace: e.Key.Namespace, Name: e.Key.Name, UID: e.UID})
}

// Export writes a machine or a snapshot into a file, as `virtctl export` does.
func (a *actions) Export(ctx context.Context, e page.Export, t *page.Transfer) error {
	path, _, err := a.ExportFile(e)
	if err == nil {
		err = a.sameSource(ctx, e)
	}
	if err != nil {
		return err
	}
	part, err := backup.NewPart(path)
	if err != nil {
		return err
	}
	done, err := backup.Write(ctx, a.client, part, backup.ExportOptions{
		Namespace: e.Key.Namespace, Kind: sourceKind(e), Name: e.Key.Name,
		Temporary: backup.Temporary(e.Key.Name, a.factory.RandomName(5)), Lifetime: backupcmd.DefaultLifetime,
		Readiness: backupcmd.DefaultReadiness, Taking: backupcmd.Taking, Pause: backupcmd.Pause,
		NoteEach: backupcmd.NoteEach, Now: a.factory.Now(),
		Report: t.Report, Show: t.Show, Note: t.Note,
	})
	if err != nil {
		return err
	}
	for _, what := range done.Index.NotIncluded {
		t.Note("not in the file: " + what)
	}
	for _, what := range done.Needs {
		t.Note("not in the file, and the VM names it: " + what)
	}
	return a.noted(nil, "export", e.Key.String())
}
