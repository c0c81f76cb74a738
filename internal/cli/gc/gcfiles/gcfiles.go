// Package gcfiles reads the input of jettison gc --from: the JSON output of crictl, and gc.json
// with the policy and the facts that crictl does not print. docs/reference/formats.md describes the
// format. Reading is strict, because the content decides about removals: an unknown state, or
// content that does not match the file name, is an error and never an empty list.
//
//	gcfiles.go  Read: the four files of a directory
//	crictl.go   output of crictl
//	gc.go       gc.json
//	value.go    numbers, times and durations in JSON
//	fault.go    errors with file, line and field
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

// MaxFile is the size limit of a file in bytes. crictl prints about 1.5 KB for a container.
const MaxFile = 256 << 20

// Names of the files in a directory.
const (
	ContainersFile = "containers.json" // crictl ps -a -o json
	SandboxesFile  = "sandboxes.json"  // crictl pods -o json
	ImagesFile     = "images.json"     // crictl images -o json
	GCFile         = "gc.json"
)

// Node is the content of the files.
type Node struct {
	Now    time.Time
	Policy reclaim.Policy
	Look   reclaim.Look
}

// Plan returns the plan of a pass.
func (n *Node) Plan() reclaim.Plan { return n.Policy.Plan(n.Now, &n.Look) }

// Read reads the four files of a directory. It returns a *strict.FieldError with line and field for
// an invalid file.
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
		return nil, fmt.Errorf("%w: --from needs a directory with %s, %s, %s and %s (docs/reference/formats.md)",
			err, ContainersFile, SandboxesFile, ImagesFile, GCFile)
	}
	return text, err
}

// unmarshal reads one JSON object. strict makes unknown fields errors; output of crictl may have
// more fields.
func unmarshal(text []byte, out any, strict bool) error {
	return json.Unmarshal(text, out, json.RejectUnknownMembers(strict))
}
