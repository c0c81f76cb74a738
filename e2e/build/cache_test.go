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

// Leftovers of a failed or killed build are never used, and the next build starts in an empty
// folder.
func TestAHalfBuiltEntryIsNotTaken(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	broken := errors.New("broken")
	if _, err := Cached("part-1", quiet, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return broken
	}); !errors.Is(err, broken) {
		t.Fatalf("error of the failed build = %v, want broken", err)
	}
	dir, err := Cached("part-1", quiet, func(dir string) error {
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("second build starts with files %v, want none", left)
		}
		return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "whole")); err != nil {
		t.Error(err)
	}
	if _, err := Cached("part-1", quiet, func(string) error { t.Error("the entry was built twice"); return nil }); err != nil {
		t.Fatal(err)
	}
}

// Two processes that need the same part at the same time build it once.
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
		t.Errorf("the part was built %d times, want 1", builds.Load())
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
		t.Error("digests of the same input differ")
	}
	for _, other := range []string{one("b", "x"), one("a", "y"), one("a", "x", "x")} {
		if seen[other] {
			t.Errorf("digest %s is the same for two inputs", other)
		}
		seen[other] = true
	}
	if _, err := Digest(nil, []string{"/nowhere"}); err == nil {
		t.Error("digest of a missing file succeeds, want an error")
	}
}
