package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// dist is the folder that "make release" wrote. It ends with this test.
var dist = flag.String("dist", "", "folder of a release, whose artefacts TestArtefacts checks")

// files has the contents of an archive's files by path.
type files map[string][]byte

// readTar reads an archive, compressed or not.
func readTar(t *testing.T, what string, text []byte) files {
	t.Helper()
	var r io.Reader = bytes.NewReader(text)
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		var err error
		if r, err = gzip.NewReader(r); err != nil {
			t.Fatalf("decompress the archive %s of the release: %v", what, err)
		}
	}
	out := files{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("read the next header of the archive %s: %v", what, err)
		}
		if out[path.Clean(h.Name)], err = io.ReadAll(archive); err != nil {
			t.Fatalf("read %s in the archive %s: %v", h.Name, what, err)
		}
	}
}

// readDeb reads the files that a Debian package installs: an ar archive has them in data.tar.gz.
func readDeb(t *testing.T, what string, text []byte) files {
	t.Helper()
	rest, ok := bytes.CutPrefix(text, []byte("!<arch>\n"))
	for ok && len(rest) >= 60 {
		name := strings.TrimRight(string(rest[:16]), " /")
		size, err := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if err != nil || 60+size > len(rest) {
			break
		}
		if name == "data.tar.gz" {
			return readTar(t, what, rest[60:60+size])
		}
		rest = rest[min(60+size+size%2, len(rest)):]
	}
	t.Fatalf("the Debian package %s has no data.tar.gz", what)
	return nil
}

// descriptor refers to a blob of an image.
type descriptor struct {
	Digest   string
	Platform struct{ Architecture string }
}

// readImage reads the files of an OCI image by architecture.
func readImage(t *testing.T, what string, text []byte) map[string]files {
	t.Helper()
	image := readTar(t, what, text)
	var open func(text []byte, arch string)
	out := map[string]files{}
	blob := func(d descriptor) []byte { return image["blobs/"+strings.Replace(d.Digest, ":", "/", 1)] }
	open = func(text []byte, arch string) {
		var manifest struct{ Manifests, Layers []descriptor }
		if err := json.Unmarshal(text, &manifest); err != nil {
			t.Fatalf("read a manifest of the image %s: %v", what, err)
		}
		for _, d := range manifest.Manifests {
			open(blob(d), d.Platform.Architecture)
		}
		for _, d := range manifest.Layers {
			if out[arch] == nil {
				out[arch] = files{}
			}
			maps.Copy(out[arch], readTar(t, what, blob(d)))
		}
	}
	open(image["index.json"], "")
	return out
}

// release is a folder that "make release" wrote.
type release struct {
	license []byte
	all     files // of SHA256SUMS
}

// readRelease reads the files that SHA256SUMS lists, and checks their digests.
func readRelease(t *testing.T, dir string) *release {
	t.Helper()
	license, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	r := &release{license: license, all: files{}}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(text); hex.EncodeToString(got[:]) != sum {
			t.Errorf("digest of %s = %x, want %s of SHA256SUMS", name, got, sum)
		}
		r.all[name] = text
	}
	return r
}

// check compares the documents in an artefact with the binary in it, and with those of the release.
func (r *release) check(t *testing.T, what, program, arch string, in files, binary, doc, license string) {
	t.Helper()
	if !bytes.Equal(in[path.Join(doc, license)], r.license) {
		t.Errorf("%s: %s has %d bytes, want the project's LICENSE", what, path.Join(doc, license), len(in[path.Join(doc, license)]))
	}
	name := path.Join(doc, program+".cdx.json")
	var bom cdx.BOM
	if err := json.Unmarshal(in[name], &bom); err != nil || bom.Metadata == nil || bom.Components == nil {
		t.Errorf("%s: %s is no bill of materials: %v", what, name, err)
		return
	}
	sum := sha256.Sum256(in[binary])
	if got := (*bom.Metadata.Component.Hashes)[0].Value; got != hex.EncodeToString(sum[:]) {
		t.Errorf("%s: digest in %s = %s, want %x of %s", what, name, got, sum, binary)
	}
	beside := fmt.Sprintf("%s-%s-linux-%s.cdx.json", program, bom.Metadata.Component.Version, arch)
	if !bytes.Equal(r.all[beside], in[name]) {
		t.Errorf("%s: %s is not equal to %s of the release (%d bytes)", what, name, beside, len(r.all[beside]))
	}
	for _, c := range *bom.Components {
		if line := fmt.Sprintf("  %s %s (", c.Name, c.Version); !bytes.Contains(in[path.Join(doc, "THIRD-PARTY-NOTICES")], []byte(line)) {
			t.Errorf("%s: THIRD-PARTY-NOTICES lacks the module %s %s of %s", what, c.Name, c.Version, name)
		}
	}
}

// Each package, tarball and image of a release has the licence, the notices of the linked modules,
// and a bill of materials of its binary, which is also next to it. The chart has the licence.
func TestArtefacts(t *testing.T) {
	if *dist == "" {
		t.Skip("\"make release\" runs this test with -dist")
	}
	r := readRelease(t, *dist)
	found := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(r.all)) {
		text, kind := r.all[name], path.Ext(name)
		found[kind]++
		stem, _, _ := strings.Cut(name, ".tar")
		arch := strings.TrimSuffix(stem[strings.LastIndexAny(stem, "-_")+1:], kind)
		switch kind {
		case ".json": // compared with those in the artefacts
		case ".tgz":
			if !bytes.Equal(readTar(t, name, text)["jettison/LICENSE"], r.license) {
				t.Errorf("%s has no jettison/LICENSE that equals the project's", name)
			}
		case ".gz":
			r.check(t, name, "jettison", arch, readTar(t, name, text), stem+"/jettison", stem, "LICENSE")
		case ".deb":
			r.check(t, name, "jettison", arch, readDeb(t, name, text), "usr/bin/jettison", "usr/share/doc/jettison", "copyright")
		case ".tar":
			for arch, in := range readImage(t, name, text) {
				found[".tar "+arch]++
				r.check(t, name+" for "+arch, stem, arch, in, stem, "usr/share/doc/"+stem, "LICENSE")
			}
		default:
			t.Errorf("%s: unknown kind of artefact: add its check here", name)
		}
	}
	want := map[string]int{".tar": 3, ".tar amd64": 3, ".tar arm64": 3, ".deb": 2, ".gz": 2, ".tgz": 1, ".json": 6}
	if !maps.Equal(found, want) {
		t.Errorf("artefacts by kind = %v, want %v", found, want)
	}
}
