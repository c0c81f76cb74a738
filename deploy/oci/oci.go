// Package oci packs static binaries as container images without a daemon and without a network: an
// OCI image layout in one tar file, which `ctr images import`, `podman load`, `skopeo` and `docker
// load` (25.0 and later) read. The same input gives the same bytes, independent of clock, user name
// and map order.
package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image describes an image: one static binary for each architecture, and its documents.
type Image struct {
	Name     string            // reference to import it under: "localhost/jettison:dev"
	Binaries map[string]string // GOARCH to the path of its binary
	Path     string            // the binary's path in the image: "/jettison"
	// Documents is a folder with a folder of files for each architecture, such as licences, that the
	// image has in DocumentPath. Empty: the image has only the binary.
	Documents    string
	DocumentPath string
	Entrypoint   []string
	Cmd          []string
	Labels       map[string]string
}

// architectures is the order in which architectures are written, independent of map order.
var architectures = []string{"amd64", "arm64"}

// Write packs the image into one tar file at path and returns the digest of its index. It writes a
// temporary file first and renames it, so that a reader never sees an incomplete image.
func (i Image) Write(path string) (digest string, err error) {
	index, err := i.index()
	if err != nil {
		return "", fmt.Errorf("pack image %s: %w", i.Name, err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, index); err != nil {
		return "", fmt.Errorf("pack image %s: %w", i.Name, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".image-*.tar")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	defer f.Close()
	if err := tarFolder(f, os.DirFS(dir)); err != nil {
		return "", fmt.Errorf("pack image %s: %w", i.Name, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	hash, err := index.Digest()
	if err != nil {
		return "", err
	}
	return hash.String(), os.Rename(f.Name(), path)
}

// index returns the layout's index.json: it names the image of a single architecture, else an index
// of the images.
func (i Image) index() (v1.ImageIndex, error) {
	named := map[string]string{
		"io.containerd.image.name":          i.Name, // containerd's importer
		"org.opencontainers.image.ref.name": i.Name, // that of all other tools
	}
	var images []mutate.IndexAddendum
	for _, arch := range architectures {
		binary, ok := i.Binaries[arch]
		if !ok {
			continue
		}
		image, err := i.image(arch, binary)
		if err != nil {
			return nil, err
		}
		platform := &v1.Platform{OS: "linux", Architecture: arch}
		images = append(images, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: platform}})
	}
	if len(images) != len(i.Binaries) || len(images) == 0 {
		return nil, fmt.Errorf("binaries for %d architectures, want some of %v", len(i.Binaries),
			architectures)
	}
	if len(images) == 1 {
		images[0].Annotations = named
		return ociIndex(images...), nil
	}
	return ociIndex(mutate.IndexAddendum{Add: ociIndex(images...),
		Descriptor: v1.Descriptor{Annotations: named}}), nil
}

func ociIndex(add ...mutate.IndexAddendum) v1.ImageIndex {
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), add...)
}

func (i Image) image(arch, binary string) (v1.Image, error) {
	layer, err := binaryLayer(binary, i.Path)
	if err != nil {
		return nil, err
	}
	layers := []mutate.Addendum{{Layer: layer}}
	if i.Documents != "" {
		layer, err := documentLayer(filepath.Join(i.Documents, arch), i.DocumentPath)
		if err != nil {
			return nil, err
		}
		layers = append(layers, mutate.Addendum{Layer: layer})
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	image, err = mutate.Append(image, layers...)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{Entrypoint: i.Entrypoint, Cmd: i.Cmd, Labels: i.Labels}
	return mutate.ConfigFile(image, config)
}

// binaryLayer returns a layer of one file, owned by root, executable by every user, with a time of
// 1970.
func binaryLayer(from, to string) (v1.Layer, error) {
	content, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := writeFile(w, path.Clean(to)[1:], 0o755, content); err != nil {
		return nil, err
	}
	return layerOf(w, &b)
}

// documentLayer returns a layer of the files of a folder, owned by root, readable by every user.
func documentLayer(from, to string) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("folder %s has no documents", from)
	}
	if err := addFolder(w, os.DirFS(from), path.Clean(to)[1:]); err != nil {
		return nil, err
	}
	return layerOf(w, &b)
}

// layerOf ends the archive of a layer.
func layerOf(w *tar.Writer, b *bytes.Buffer) (v1.Layer, error) {
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// tarFolder writes every file below a folder as an archive.
func tarFolder(w io.Writer, folder fs.FS) error {
	t := tar.NewWriter(w)
	if err := addFolder(t, folder, ""); err != nil {
		return err
	}
	return t.Close()
}

// addFolder writes every file below a folder in lexical order (fs.WalkDir's), with headers that are
// independent of this machine.
func addFolder(t *tar.Writer, folder fs.FS, to string) error {
	return fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(folder, name)
		if err != nil {
			return err
		}
		return writeFile(t, path.Join(to, name), 0o644, content)
	})
}

func writeFile(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(regular(name, mode, len(content))); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// regular returns the header of a file, independent of the time.
func regular(name string, mode int64, size int) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(size),
		ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
}
