// Package gcfiles reads a node's garbage from files, for jettison gc --from: what crictl prints as JSON, and gc.json with the policy and
// what crictl cannot tell. docs/reference/formats.md has the format. What can remove something is read strictly: a state that is not
// known, or a file that is not what its name says, is an error, never an empty list.
package gcfiles

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

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

// Read reads the four files of a directory. What is wrong with one is a *Fault with its line and field.
func Read(dir string) (*Node, error) {
	n := &Node{}
	for _, f := range []struct {
		name  string
		parse func(n *Node, text []byte) error
	}{
		{GCFile, parseGC}, {ContainersFile, parseContainers}, {SandboxesFile, parseSandboxes}, {ImagesFile, parseImages},
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
	info, err := os.Stat(path) // before it is opened: a pipe would be waited for
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: --from names a directory with %s, %s, %s and %s (docs/reference/formats.md)", err, ContainersFile, SandboxesFile, ImagesFile, GCFile)
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > MaxFile {
		return nil, fmt.Errorf("%s: longer than %d bytes", path, MaxFile)
	}
	return text, nil
}

// unmarshal reads one JSON object. strict: fields that are not known are errors; in a runtime's files they are the runtime's.
func unmarshal(text []byte, out any, strict bool) error {
	return json.Unmarshal(text, out, json.RejectUnknownMembers(strict))
}
