package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	ociv1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func gcTag(image string) string { return "localhost/gc-" + image + ":1" }

// layerOf is a layer with one file.
func layerOf(file string, mode int64, content []byte) (ociv1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: file, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg, Format: tar.FormatPAX})
	if err == nil {
		_, err = w.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
}

// importImages imports images that share the workload's program and have so many mebibytes of their
// own.
func (g *garbage) importImages(names []string, own int) {
	g.t.Helper()
	program, err := os.ReadFile("../bin/workload")
	if err != nil {
		g.t.Fatal(err)
	}
	base, err := layerOf("workload", 0o755, program)
	if err != nil {
		g.t.Fatal(err)
	}
	images := map[name.Tag]ociv1.Image{}
	for i, image := range names {
		content := make([]byte, own)
		rand.New(rand.NewSource(int64(i))).Read(content)
		layer, err := layerOf("own", 0o644, content)
		if err != nil {
			g.t.Fatal(err)
		}
		made, err := mutate.AppendLayers(empty.Image, base, layer)
		if err != nil {
			g.t.Fatal(err)
		}
		config, err := made.ConfigFile()
		if err != nil {
			g.t.Fatal(err)
		}
		config = config.DeepCopy()
		config.Architecture, config.OS, config.Config.Entrypoint = "amd64", "linux", []string{"/workload"}
		if made, err = mutate.ConfigFile(made, config); err != nil {
			g.t.Fatal(err)
		}
		tag, err := name.NewTag(gcTag(image))
		if err != nil {
			g.t.Fatal(err)
		}
		images[tag] = made
	}
	path := filepath.Join(g.t.TempDir(), "images.tar")
	if err := tarball.MultiWriteToFile(path, images); err != nil {
		g.t.Fatal(err)
	}
	if err := g.Upload(g.ctx, path, "/var/lib/tests/images.tar"); err != nil {
		g.t.Fatal(err)
	}
	if err := g.Import(g.ctx, "/var/lib/tests/images.tar"); err != nil {
		g.t.Fatal(err)
	}
	g.shell("rm /var/lib/tests/images.tar")
	g.until("the runtime has all images", func() error { // it learns of them from events
		all, err := g.Inventory(g.ctx)
		for _, i := range all.Images {
			for _, tag := range i.RepoTags {
				g.ids[tag] = i.Id
			}
		}
		for _, image := range names {
			if err == nil && g.ids[gcTag(image)] == "" {
				err = fmt.Errorf("the runtime does not have image %s", gcTag(image))
			}
		}
		return err
	})
}

// pin pins an image in the runtime.
func (g *garbage) pin(image string) {
	g.t.Helper()
	if err := g.PinImage(g.ctx, gcTag(image)); err != nil {
		g.t.Fatal(err)
	}
	g.until(image+" is pinned", func() error {
		all, err := g.Inventory(g.ctx)
		for _, i := range all.Images {
			if slices.Contains(i.RepoTags, gcTag(image)) && i.Pinned {
				return err
			}
		}
		return errors.Join(err, errors.New("the image is not pinned"))
	})
}
