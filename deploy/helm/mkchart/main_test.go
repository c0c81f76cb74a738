package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// The package has all files of the chart, the licence and the version. A copy of the chart that was
// written at another time gives the same bytes.
func TestPack(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "jettison")
	if err := os.CopyFS(copied, os.DirFS("../jettison")); err != nil {
		t.Fatal(err)
	}
	var texts [2][]byte
	for i, folder := range []string{"../jettison", copied} {
		path, err := pack(folder, "../../../LICENSE", "0.1.0-dev.1", time.Unix(1_700_000_000, 0), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(path); name != "jettison-0.1.0-dev.1.tgz" {
			t.Errorf("name of the package = %q, want jettison-0.1.0-dev.1.tgz", name)
		}
		if texts[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("packages of the same chart differ, want equal bytes")
	}

	want, err := loader.LoadDir("../jettison")
	if err != nil {
		t.Fatal(err)
	}
	got, err := loader.LoadArchive(bytes.NewReader(texts[0]))
	if err != nil {
		t.Fatal(err)
	}
	if m := got.Metadata; m.Version != "0.1.0-dev.1" || m.AppVersion != "0.1.0-dev.1" || m.KubeVersion != want.Metadata.KubeVersion {
		t.Errorf("metadata of the package = %+v, want both versions 0.1.0-dev.1, the rest as in the chart", m)
	}
	license, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	want.Files = append(want.Files, &common.File{Name: "LICENSE", Data: license})
	for what, files := range map[string][2][]*common.File{"templates": {got.Templates, want.Templates}, "files": {got.Files, want.Files}} {
		if !slices.EqualFunc(files[0], files[1], func(a, b *common.File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }) {
			t.Errorf("%s of the package have %d entries that differ from the %d of the chart", what, len(files[0]), len(files[1]))
		}
	}
	if !bytes.Equal(got.Schema, want.Schema) {
		t.Error("schema of the package differs from that of the chart")
	}
}
