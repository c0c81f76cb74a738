package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"jettison/e2e/guestapi"
)

// registry serves the images of tars over the distribution protocol, for a runtime that pulls images
// and imports none. The tars stay where they are while a runtime pulls.
type registry struct {
	mu    sync.Mutex
	blobs map[string]blob       // by digest
	tags  map[string]descriptor // of an image or an index, by "repository:tag"
}

// blob is a part of a tar, or a text in memory.
type blob struct {
	file         string
	offset, size int64
	text         []byte
}

// descriptor is an OCI content descriptor.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func newRegistry() *registry {
	return &registry{blobs: map[string]blob{}, tags: map[string]descriptor{}}
}

func (r *registry) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/{repository}/manifests/{reference}", r.manifest)
	mux.HandleFunc("GET /v2/{repository}/blobs/{reference}", r.blob)
	return mux
}

func (r *registry) listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err == nil {
		go func() { _ = http.Serve(l, r.handler()) }()
	}
	return err
}

// offer adds the images of a tar to the registry and answers with their names.
func (s *service) offer(w http.ResponseWriter, r *http.Request) {
	names, err := s.registry.add(r.FormValue("path"))
	reply(w, guestapi.Offer{Images: names}, err)
}

// add reads a tar: an OCI image layout, or what `docker save` writes.
func (r *registry) add(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	members := map[string]blob{}
	for t := tar.NewReader(f); ; {
		header, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		at, err := f.Seek(0, io.SeekCurrent) // the reader of a tar reads no more than headers ahead
		if err != nil {
			return nil, err
		}
		members[path.Clean(header.Name)] = blob{file: name, offset: at, size: header.Size}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[string]descriptor{}
	if index, ok := members["index.json"]; ok {
		err = r.addLayout(index, members, found)
	} else {
		err = r.addArchive(members, found)
	}
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no named image", name)
	}
	for image, d := range found {
		r.tags[path.Base(image)] = d
	}
	return slices.Sorted(maps.Keys(found)), err
}

func (r *registry) addLayout(index blob, members map[string]blob, found map[string]descriptor) error {
	for name, b := range members {
		if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			r.blobs["sha256:"+digest] = b
		}
	}
	var content struct{ Manifests []descriptor }
	if err := index.decode(&content); err != nil {
		return err
	}
	for _, d := range content.Manifests {
		if name := d.Annotations["org.opencontainers.image.ref.name"]; name != "" {
			found[name] = d
		}
	}
	return nil
}

// addArchive makes the manifests that an archive of `docker save` lacks.
func (r *registry) addArchive(members map[string]blob, found map[string]descriptor) error {
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := members["manifest.json"].decode(&list); err != nil {
		return err
	}
	known := map[string]descriptor{}
	part := func(name, media string) (d descriptor, err error) {
		name = path.Clean(name)
		if d, ok := known[name]; ok {
			return d, nil
		}
		if d, err = members[name].describe(media); err == nil {
			known[name], r.blobs[d.Digest] = d, members[name]
		}
		return d, err
	}
	const docker = "application/vnd.docker."
	for _, image := range list {
		manifest := struct {
			SchemaVersion int          `json:"schemaVersion"`
			MediaType     string       `json:"mediaType"`
			Config        descriptor   `json:"config"`
			Layers        []descriptor `json:"layers"`
		}{SchemaVersion: 2, MediaType: docker + "distribution.manifest.v2+json"}
		var err error
		if manifest.Config, err = part(image.Config, docker+"container.image.v1+json"); err != nil {
			return err
		}
		for _, layer := range image.Layers {
			d, err := part(layer, docker+"image.rootfs.diff.tar")
			if err != nil {
				return err
			}
			manifest.Layers = append(manifest.Layers, d)
		}
		text, err := json.Marshal(manifest)
		if err != nil {
			return err
		}
		whole := blob{text: text, size: int64(len(text))}
		d, err := whole.describe(manifest.MediaType)
		if err != nil {
			return err
		}
		r.blobs[d.Digest] = whole
		for _, tag := range image.RepoTags {
			found[tag] = d
		}
	}
	return nil
}

// open returns the blob's content. The caller closes the file, which may be nil.
func (b blob) open() (io.ReadSeeker, io.Closer, error) {
	if b.file == "" {
		return bytes.NewReader(b.text), io.NopCloser(nil), nil
	}
	f, err := os.Open(b.file)
	return io.NewSectionReader(f, b.offset, b.size), f, err
}

func (b blob) decode(into any) error {
	content, file, err := b.open()
	if err != nil {
		return err
	}
	defer file.Close()
	return json.NewDecoder(content).Decode(into)
}

// describe reads the blob for its digest. A compressed layer gets the media type with ".gzip".
func (b blob) describe(media string) (descriptor, error) {
	content, file, err := b.open()
	if err != nil {
		return descriptor{}, err
	}
	defer file.Close()
	start := make([]byte, 2)
	if _, err := io.ReadFull(content, start); err != nil {
		return descriptor{}, err
	}
	if bytes.Equal(start, []byte{0x1f, 0x8b}) {
		media += ".gzip"
	}
	sum := sha256.New()
	sum.Write(start)
	_, err = io.Copy(sum, content)
	return descriptor{MediaType: media, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: b.size}, err
}

func (r *registry) manifest(w http.ResponseWriter, q *http.Request) {
	digest, media := q.PathValue("reference"), ""
	r.mu.Lock()
	if d, ok := r.tags[q.PathValue("repository")+":"+digest]; ok {
		digest, media = d.Digest, d.MediaType
	}
	b, ok := r.blobs[digest]
	r.mu.Unlock()
	if ok && media == "" { // asked for by its digest
		var content struct{ MediaType string }
		ok = b.decode(&content) == nil
		media = content.MediaType
	}
	r.send(w, q, b, ok, digest, media)
}

func (r *registry) blob(w http.ResponseWriter, q *http.Request) {
	digest := q.PathValue("reference")
	r.mu.Lock()
	b, ok := r.blobs[digest]
	r.mu.Unlock()
	r.send(w, q, b, ok, digest, "application/octet-stream")
}

func (r *registry) send(w http.ResponseWriter, q *http.Request, b blob, known bool, digest, media string) {
	if !known {
		http.Error(w, "unknown "+q.URL.Path, http.StatusNotFound)
		return
	}
	content, file, err := b.open()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", media)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, q, "", time.Time{}, content)
}
