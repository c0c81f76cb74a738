package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Say reports progress, one line per call. Calls must not be concurrent.
type Say func(format string, args ...any)

// cacheDir is the project's folder in the user's cache directory ($XDG_CACHE_HOME, else ~/.cache).
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w: set XDG_CACHE_HOME", err)
	}
	return filepath.Join(base, "jettison"), nil
}

// Cached returns the folder kept under key. If it does not exist, it calls build to fill it. build
// works in a temporary folder that is renamed at the end, so leftovers of a failed or killed build
// are never used. Processes that need the same key wait for each other.
func Cached(key string, say Say, build func(dir string) error) (string, error) {
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	final := filepath.Join(base, key)
	if _, err := os.Stat(final); err == nil {
		now := time.Now()
		_ = os.Chtimes(final, now, now) // last use, for Prune
		return final, nil
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(final+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(final); err == nil {
		return final, nil // another process has built it
	}
	half := final + ".half"
	if err := os.RemoveAll(half); err != nil {
		return "", err
	}
	if err := os.MkdirAll(half, 0o755); err != nil {
		return "", err
	}
	start := time.Now()
	say("making %s", key)
	if err := withProgress(key, say, func() error { return build(half) }); err != nil {
		return "", fmt.Errorf("make %s: %w", key, err)
	}
	if err := os.Rename(half, final); err != nil {
		return "", err
	}
	say("made %s in %.1f s", key, time.Since(start).Seconds())
	return final, nil
}

// withProgress runs a function that may take minutes and reports progress every ten seconds.
func withProgress(what string, say Say, run func() error) error {
	start, done := time.Now(), make(chan error, 1)
	go func() { done <- run() }()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			say("still making %s, %.0f s so far", what, time.Since(start).Seconds())
		}
	}
}

// Prune removes the entries matching a pattern that were not used for so long. A running QEMU can
// still read an image that it has open.
func Prune(pattern string, unused time.Duration) {
	base, err := cacheDir()
	if err != nil {
		return
	}
	found, _ := filepath.Glob(filepath.Join(base, pattern))
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > unused {
			_ = os.RemoveAll(path)
		}
	}
}

// Digest names a set of inputs by their content: words, such as versions, and the content of files.
func Digest(words []string, files []string) (string, error) {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%q\n", w)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
