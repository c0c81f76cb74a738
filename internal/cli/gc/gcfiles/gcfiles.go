// Package gcfiles reads a node's garbage from files, for jettison gc --from: what crictl prints as
// JSON, and gc.json with the policy and what crictl cannot tell. docs/reference/formats.md has the
// format. What can remove something is read strictly: a state that is not known, or a file that is
// not what its name says, is an error, never an empty list.
//
//	gcfiles.go  Read: the four files of a directory
//	crictl.go   what crictl prints
//	gc.go       gc.json
//	value.go    numbers, times and durations in JSON
//	fault.go    what is wrong with a file, by line and field
package gcfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"jettison/internal/base/atomicfile"
	"jettison/reclaim"
)

// MaxFile is the longest file that is read, in bytes. crictl prints some 1.5 KB for a container.
const MaxFile = 256 << 20

// The files of a directory.
const (
	ContainersFile = "containers.json" // crictl ps -a -o json
	SandboxesFile  = "sandboxes.json"  // crictl pods -o json
	ImagesFile     = "images.json"     // crictl images -o json
	GCFile         = "gc.json"
)

// Node is what the files say.
type Node struct {
	Now    time.Time
	Policy reclaim.Policy
	Look   reclaim.Look
}

// Plan is what to remove.
func (n *Node) Plan() reclaim.Plan { return n.Policy.Plan(n.Now, &n.Look) }

// Read reads the four files of a directory. What is wrong with one is a *strict.FieldError with its
// line and field.
func Read(dir string) (*Node, error) {
	n := &Node{}
	for _, f := range []struct {
		name  string
		parse func(n *Node, text []byte) error
	}{
		{GCFile, parseGC}, {ContainersFile, parseContainers}, {SandboxesFile, parseSandboxes},
		{ImagesFile, parseImages},
	} {
		path := filepath.Join(dir, f.name)
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		if err := f.parse(n, text); err != nil {
			return nil, faultIn(path, text, err)
		}
	}
	return n, nil
}

// readFile reads a regular file of at most MaxFile bytes.
func readFile(path string) ([]byte, error) {
	text, err := atomicfile.Read(path, MaxFile, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%w: --from names a directory with %s, %s, %s and %s (docs/reference/formats.md)",
			err, ContainersFile, SandboxesFile, ImagesFile, GCFile)
	}
	return text, err
}

// unmarshal reads one JSON object. strict: fields that are not known are errors; in a runtime's
// files they are the runtime's.
func unmarshal(text []byte, out any, strict bool) error {
	return json.Unmarshal(text, out, json.RejectUnknownMembers(strict))
}
