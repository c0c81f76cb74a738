package build

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func quiet(string, ...any) {}

// What a failed or killed build left behind is never taken for the whole, and the next one starts afresh.
func TestAHalfBuiltEntryIsNotTaken(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	broken := errors.New("broken")
	if _, err := Cached("part-1", quiet, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return broken
	}); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	dir, err := Cached("part-1", quiet, func(dir string) error {
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("the second build finds %v", left)
		}
		return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "whole")); err != nil {
		t.Error(err)
	}
	if _, err := Cached("part-1", quiet, func(string) error { t.Error("built twice"); return nil }); err != nil {
		t.Fatal(err)
	}
}

// Two that want the same part at once build it once.
func TestOneBuildForAll(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var builds atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := Cached("part-2", quiet, func(dir string) error {
				builds.Add(1)
				return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if builds.Load() != 1 {
		t.Errorf("built %d times", builds.Load())
	}
}

func TestDigestNamesContent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	one := func(content string, words ...string) string {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		d, err := Digest(words, []string{file})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	seen := map[string]bool{one("a", "x"): true}
	if !seen[one("a", "x")] {
		t.Error("the same input, another digest")
	}
	for _, other := range []string{one("b", "x"), one("a", "y"), one("a", "x", "x")} {
		if seen[other] {
			t.Errorf("%s stands for two inputs", other)
		}
		seen[other] = true
	}
	if _, err := Digest(nil, []string{"/nowhere"}); err == nil {
		t.Error("a file that is gone has a digest")
	}
}
