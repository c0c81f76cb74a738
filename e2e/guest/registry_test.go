package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"jettison/deploy/oci"
)

// A client pulls the images of both kinds of tar that scenarios import: a layout with an index of
// two architectures, and an archive of images with shared, compressed and plain layers.
func TestRegistryServesTars(t *testing.T) {
	dir := t.TempDir()
	layout, archive := filepath.Join(dir, "layout.tar"), filepath.Join(dir, "archive.tar")
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	image := oci.Image{Name: "localhost/agent:dev", Path: "/agent", Binaries: map[string]string{"amd64": program, "arm64": program}}
	if _, err := image.Write(layout); err != nil {
		t.Fatal(err)
	}
	base, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	more, err := mutate.AppendLayers(base, static.NewLayer(bytes.Repeat([]byte{0}, 1024), types.DockerUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	images := map[name.Tag]v1.Image{}
	for text, image := range map[string]v1.Image{"localhost/base:1": base, "localhost/more:1": more} {
		tag, err := name.NewTag(text)
		if err != nil {
			t.Fatal(err)
		}
		images[tag] = image
	}
	if err := tarball.MultiWriteToFile(archive, images); err != nil {
		t.Fatal(err)
	}

	r := newRegistry()
	server := httptest.NewServer(r.handler())
	defer server.Close()
	for file, want := range map[string][]string{layout: {"localhost/agent:dev"}, archive: {"localhost/base:1", "localhost/more:1"}} {
		names, err := r.add(file)
		if err != nil || !slices.Equal(names, want) {
			t.Errorf("images of %s = %v, %v, want %v", filepath.Base(file), names, err, want)
		}
		for _, image := range want {
			repository, tag, _ := strings.Cut(strings.TrimPrefix(image, "localhost/"), ":")
			pullImage(t, server.URL+"/v2/"+repository, tag)
		}
	}
	res, err := http.Get(server.URL + "/v2/other/manifests/1")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("answer for an unknown image = %s, want 404", res.Status)
	}
	if _, err := r.add(program); err == nil {
		t.Error("a file that is no tar was added")
	}
}

// pullImage reads an image's manifests, its config and every layer, and checks their digests.
func pullImage(t *testing.T, repository, reference string) {
	t.Helper()
	content, media := fetch(t, repository+"/manifests/"+reference)
	var manifest struct {
		MediaType         string
		Manifests, Layers []descriptor
		Config            descriptor
	}
	if err := json.Unmarshal(content, &manifest); err != nil || manifest.MediaType != media {
		t.Fatalf("manifest %s of %s: %v, media type %q, sent as %q", reference, repository, err, manifest.MediaType, media)
	}
	if len(manifest.Manifests) > 0 {
		for _, m := range manifest.Manifests {
			pullImage(t, repository, m.Digest)
		}
		return
	}
	if len(manifest.Layers) == 0 {
		t.Errorf("manifest %s of %s has no layers", reference, repository)
	}
	for _, d := range append(manifest.Layers, manifest.Config) {
		content, _ := fetch(t, repository+"/blobs/"+d.Digest)
		sum := sha256.Sum256(content)
		if got := "sha256:" + hex.EncodeToString(sum[:]); got != d.Digest || int64(len(content)) != d.Size {
			t.Errorf("blob %s of %s: %d bytes with digest %s, want %d bytes", d.Digest, repository, len(content), got, d.Size)
		}
		if compressed := bytes.HasPrefix(content, []byte{0x1f, 0x8b}); compressed != strings.HasSuffix(d.MediaType, "gzip") {
			t.Errorf("media type of blob %s of %s = %s, compressed: %v", d.Digest, repository, d.MediaType, compressed)
		}
	}
}

func fetch(t *testing.T, url string) (content []byte, media string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err = io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("answer at %s = %s, %v, want OK", url, res.Status, err)
	}
	return content, res.Header.Get("Content-Type")
}
