package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1image "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"jettison/e2e/build"
)

// ImageForeign is the node's name of the image of programs from other projects: Debian's stress-ng
// and redis.
const ImageForeign = "localhost/foreign:1"

// foreignPrograms are the image's programs, at Debian's paths.
var foreignPrograms = []string{"usr/bin/stress-ng", "usr/bin/redis-server", "usr/bin/redis-cli"}

// Paths where a program finds its interpreter and its libraries without a cache of them.
const (
	loader     = "lib64/ld-linux-x86-64.so.2"
	libraryDir = "lib/x86_64-linux-gnu"
)

// ImportForeign imports the image. It has 20 MB, so only nodes that need it have it.
func (n *Node) ImportForeign(ctx context.Context) error {
	files, err := foreignFiles(ctx, n.say)
	var image []byte
	if err == nil {
		image, err = packForeign(files)
	}
	if err != nil {
		return fmt.Errorf("image of foreign programs: %w", err)
	}
	const there = "/images/foreign.tar"
	if err := n.WriteFile(ctx, there, image); err != nil {
		return err
	}
	if err := n.Import(ctx, there); err != nil {
		return err
	}
	_, err = n.Shell(ctx, "rm "+there)
	return err
}

// foreignFiles fetches the programs and their libraries from apt, or finds them in the cache. It
// maps name in the image to path on this machine.
func foreignFiles(ctx context.Context, say Say) (map[string]string, error) {
	dir, err := build.Cached("foreign-bookworm", say, func(dir string) error {
		root := filepath.Join(dir, "root")
		defer os.RemoveAll(root) // eight times the size of the files kept
		_, err := build.Run(ctx, dir, nil, "mmdebstrap", "--variant=extract", "--include=stress-ng,redis-server,redis-tools", "bookworm", root)
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("%w: install the package mmdebstrap", err)
		}
		if err != nil {
			return err
		}
		needed, err := withLibraries(root)
		if err != nil {
			return err
		}
		for as, from := range needed {
			to := filepath.Join(dir, "image", as)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if err := copyFile(from, to); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	files, image := map[string]string{}, filepath.Join(dir, "image")
	err = filepath.WalkDir(image, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		as, err := filepath.Rel(image, path)
		files[as] = path
		return err
	})
	return files, err
}

// withLibraries finds the programs below root and the libraries that the dynamic loader will load.
// It maps name in the image to path on this machine.
func withLibraries(root string) (map[string]string, error) {
	files := map[string]string{}
	var todo []string
	add := func(as string, candidates ...string) error {
		if files[as] != "" {
			return nil
		}
		for _, c := range candidates {
			if path, err := filepath.EvalSymlinks(filepath.Join(root, c)); err == nil {
				files[as] = path
				todo = append(todo, path)
				return nil
			}
		}
		return fmt.Errorf("the packages have none of %v", candidates)
	}
	for _, program := range foreignPrograms {
		if err := add(program, program); err != nil {
			return nil, err
		}
	}
	if err := add(loader, loader, "usr/"+loader, libraryDir+"/"+filepath.Base(loader)); err != nil {
		return nil, err
	}
	for ; len(todo) > 0; todo = todo[1:] {
		f, err := elf.Open(todo[0])
		if err != nil {
			return nil, err
		}
		needed, err := f.ImportedLibraries()
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", todo[0], err)
		}
		for _, lib := range needed {
			if err := add(libraryDir+"/"+lib, libraryDir+"/"+lib, "usr/"+libraryDir+"/"+lib); err != nil {
				return nil, fmt.Errorf("%s: %w", todo[0], err)
			}
		}
	}
	return files, nil
}

// packForeign makes an uncompressed image of one layer: reading it costs the emulated guest less
// than unpacking it.
func packForeign(files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, as := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[as])
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: as, Mode: 0o755, Size: int64(len(content)), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, Format: tar.FormatUSTAR}); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1image.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err == nil {
		image, err = mutate.AppendLayers(image, static.NewLayer(b.Bytes(), types.DockerUncompressedLayer))
	}
	if err != nil {
		return nil, err
	}
	tag, err := name.NewTag(ImageForeign)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = tarball.Write(tag, image, &out)
	return out.Bytes(), err
}
