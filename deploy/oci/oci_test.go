package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// binaries writes two stand-ins for the agent's binaries.
func binaries(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, arch := range architectures {
		path := filepath.Join(t.TempDir(), arch)
		if err := os.WriteFile(path, []byte("binary for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
		out[arch] = path
	}
	return out
}

// documented returns an image with documents for each architecture.
func documented(t *testing.T, image Image) Image {
	t.Helper()
	image.Documents = t.TempDir()
	for _, arch := range architectures {
		for name, text := range map[string]string{"LICENSE": "licence", "THIRD-PARTY-NOTICES": "notices for " + arch} {
			path := filepath.Join(image.Documents, arch, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return image
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	in := binaries(t)
	image := documented(t, Agent(in))
	var texts [2][]byte
	var digests [2]string
	for i := range texts {
		path := filepath.Join(t.TempDir(), "image.tar")
		var err error
		if digests[i], err = image.Write(path); err != nil {
			t.Fatal(err)
		}
		if texts[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) || digests[0] != digests[1] {
		t.Errorf("digests of two packings differ: %s and %s", digests[0], digests[1])
	}
	if err := os.WriteFile(in["arm64"], []byte("another binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other, err := image.Write(filepath.Join(t.TempDir(), "image.tar")); err != nil || other == digests[0] {
		t.Errorf("another binary has the same digest (%v)", err)
	}
}

// unpack writes a packed image's layout to a folder and opens it.
func unpack(t *testing.T, image Image) v1.ImageIndex {
	t.Helper()
	file, dir := filepath.Join(t.TempDir(), "image.tar"), t.TempDir()
	if _, err := image.Write(file); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// images finds the images of an index by architecture, through the index that names them.
func images(t *testing.T, index v1.ImageIndex) map[string]v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		if d.MediaType.IsIndex() {
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(out, images(t, inner))
			continue
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		out[d.Platform.Architecture] = image
	}
	return out
}

// An image has only the binary and its documents, for each architecture, under the name in its DaemonSet.
func TestImages(t *testing.T) {
	for name, manifest := range map[string]string{
		"jettison": "../base/daemonset.yaml", "jettison-bridge": "../components/bridge/daemonset.yaml", "jettison-cluster": "../cluster/deployment.yaml",
	} {
		t.Run(name, func(t *testing.T) { testImage(t, name, manifest) })
	}
}

func testImage(t *testing.T, program, file string) {
	in := binaries(t)
	index := unpack(t, documented(t, Images[program](in)))
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	name := manifest.Manifests[0].Annotations["io.containerd.image.name"]
	daemonset, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || !strings.Contains(string(daemonset), "image: "+name+"\n") {
		t.Errorf("the archive has name %q in %d entries, want the DaemonSet's image", name, len(manifest.Manifests))
	}
	for arch, image := range images(t, index) {
		layers, err := image.Layers()
		if err != nil || len(layers) != 2 {
			t.Fatalf("%s: image has %d layers (%v), want two", arch, len(layers), err)
		}
		checkLayer(t, layers[0], []entry{{program, 0o755, "binary for " + arch}})
		documents := "usr/share/doc/" + program + "/"
		checkLayer(t, layers[1], []entry{{documents + "LICENSE", 0o644, "licence"},
			{documents + "THIRD-PARTY-NOTICES", 0o644, "notices for " + arch}})
		config, err := image.ConfigFile()
		if err != nil || config.OS != "linux" || config.Architecture != arch {
			t.Errorf("%s: config of the image = %+v, %v", arch, config, err)
		}
	}
	if got := images(t, index); len(got) != len(in) {
		t.Errorf("%d images in the index, want %d", len(got), len(in))
	}
}

// entry is a file of a layer.
type entry struct {
	name string
	mode int64
	text string
}

// checkLayer compares the files of a layer. All belong to root and have a time of 1970.
func checkLayer(t *testing.T, layer v1.Layer, want []entry) {
	t.Helper()
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var got []entry
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("header of %s = %+v (%v), want root's and no time", h.Name, h, err)
		}
		got = append(got, entry{h.Name, h.Mode, string(text)})
	}
	if !slices.Equal(got, want) {
		t.Errorf("files of the layer = %+v, want %+v", got, want)
	}
}

// A stage of the Dockerfile and this package's image are equal: base, files, entry point, command,
// labels. The last stage is the agent's.
func TestTheDockerfileSaysTheSame(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for of, want := range map[string]Image{"scratch": Agent(nil), "scratch AS bridge": Bridge(nil), "scratch AS cluster": Cluster(nil)} {
		if got := stageOf(t, string(text), of); !reflect.DeepEqual(got, Image{
			Path: want.Path, DocumentPath: want.DocumentPath, Entrypoint: want.Entrypoint, Cmd: want.Cmd, Labels: want.Labels,
		}) {
			t.Errorf("Dockerfile stage %s is %+v, want %+v", of, got, want)
		}
	}
	if stages := strings.Split(string(text), "\nFROM "); !strings.HasPrefix(stages[len(stages)-1], "scratch\n") {
		t.Error("the last stage is not the agent's")
	}
}

// stageOf reads one stage of a Dockerfile, which copies one of the binaries of the stage "build", and that binary's documents.
func stageOf(t *testing.T, text, of string) Image {
	t.Helper()
	var got Image
	got.Labels = map[string]string{}
	stage, outputs := "", map[string]bool{}
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		list := func() (out []string) {
			if err := json.Unmarshal([]byte(rest), &out); err != nil {
				t.Fatalf("parse a line of the Dockerfile, %s: %v", line, err)
			}
			return out
		}
		if word == "FROM" {
			stage = rest
		}
		if _, after, ok := strings.Cut(line, " -o "); ok { // also in the second line of a RUN
			path, _, _ := strings.Cut(after, " ")
			outputs[path] = true
		}
		if stage != of {
			continue
		}
		switch word {
		case "COPY":
			switch fields := strings.Fields(rest); {
			case len(fields) != 3 || fields[0] != "--from=build" || !outputs[fields[1]]:
				t.Errorf("stage %s copies %q, want a built binary or its documents", of, rest)
			case got.Path == "":
				got.Path = fields[2]
			case got.DocumentPath == "" && fields[1] == "/documents"+got.Path:
				got.DocumentPath = fields[2]
			default:
				t.Errorf("stage %s copies %q, want one binary and its documents", of, rest)
			}
		case "LABEL":
			key, value, _ := strings.Cut(rest, "=")
			got.Labels[key] = strings.Trim(value, `"`)
		case "ENTRYPOINT":
			got.Entrypoint = list()
		case "CMD":
			got.Cmd = list()
		case "", "#", "FROM":
		default:
			t.Errorf("%s: unknown instruction: extend this test to compare it with the packed image", word)
		}
	}
	return got
}

func TestBadImages(t *testing.T) {
	for name, in := range map[string]map[string]string{
		"no binary":               {},
		"a binary that is gone":   {"amd64": "/nowhere"},
		"an unknown architecture": {"amd64": "/bin/sh", "vax": "/bin/sh"},
		// The layer of documents fails after that of the binary.
		"documents that are missing": {"amd64": "/bin/sh"},
	} {
		path := filepath.Join(t.TempDir(), "image.tar")
		image := Agent(in)
		if name == "documents that are missing" {
			image.Documents = t.TempDir()
		}
		if _, err := image.Write(path); err == nil {
			t.Errorf("%s: image was packed, want an error", name)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 0 {
			t.Errorf("%s: failed packing left files %v", name, left)
		}
	}
}
