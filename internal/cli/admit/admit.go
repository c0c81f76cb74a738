// Package admit implements jettison admit: it asks the agent whether the node admits a pod.
package admit

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/internal/base/atomicfile"
	"jettison/internal/base/output"
	"jettison/internal/base/podjson"
)

// ErrRejected reports that the node rejects the pod. The answer was printed.
var ErrRejected = errors.New("the node rejects the pod")

// Timeouts of a query, and of one with --preempt. The agent answers the latter within 60 s.
const (
	queryTimeout   = 10 * time.Second
	preemptTimeout = 65 * time.Second
)

// options of run.
type options struct {
	file    string // file of the pod, YAML or JSON; "-": stdin
	stdin   *os.File
	socket  string        // the agent's socket
	timeout time.Duration // for the answer
	preempt bool          // preempt other pods if the pod is critical and does not fit
	format  output.Format
}

// run queries the agent once and prints the answer. It returns ErrRejected if the node rejects the
// pod. Fields that the agent does not know are reported on stderr.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) error {
	p, err := o.read(ctx)
	if err != nil {
		return fmt.Errorf("admit: %s: %w", o.file, err)
	}
	c := api.New(api.Options{Socket: o.socket, Limit: o.timeout})
	ask := c.Admit
	if o.preempt {
		ask = c.Preempt
	}
	answer, err := ask(ctx, p.text)
	if err != nil {
		return err
	}
	for _, field := range answer.Unknown {
		fmt.Fprintf(stderr, "jettison: admit: %s: unknown field %q ignored\n", o.file,
			field)
	}
	if o.format.Data() {
		err = o.format.Encode(stdout, answer, false)
	} else if answer.Admit {
		_, err = fmt.Fprintf(stdout, "%s is admitted\n", p.name)
	} else {
		_, err = fmt.Fprintf(stdout, "%s is rejected: %s: %s\n", p.name, answer.Reason,
			output.OneLine(answer.Message))
	}
	if err == nil && !answer.Admit {
		err = ErrRejected
	}
	return err
}

// podQuery is a pod in the form that the agent accepts.
type podQuery struct {
	text json.RawMessage
	name string // namespace/name
}

// read reads the file and fills in missing metadata. A pod without a UID gets a unique one, so that
// the agent treats it as a new pod in addition to the existing ones.
func (o *options) read(ctx context.Context) (*podQuery, error) {
	text, err := o.text(ctx)
	if err != nil {
		return nil, err
	}
	written := text
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		if text, err = podjson.YAML(text); err != nil {
			return nil, err
		}
	}
	p, unknown, err := podjson.DecodeForAdmission(text)
	if line := podjson.Line(written, err); line > 0 {
		return nil, fmt.Errorf("line %d: %w", line, err)
	}
	if err != nil {
		return nil, err
	}
	if err := podjson.Typed(p); err != nil { // as kubectl does
		return nil, err
	}
	fill := map[string]string{}
	if p.UID == "" {
		if o.preempt {
			return nil, errors.New("metadata.uid: missing: --preempt needs the UID that the pod has in the " +
				"runtime or a static manifest")
		}
		p.UID = types.UID("asked-" + rand.Text())
		fill["uid"] = string(p.UID)
	}
	if p.Namespace == "" {
		p.Namespace = v1.NamespaceDefault
		fill["namespace"] = p.Namespace
	}
	if err := podjson.Complete(p, unknown); err != nil {
		return nil, err
	}
	if text, err = addMetadata(text, fill); err != nil {
		return nil, err
	}
	return &podQuery{text: text, name: p.Namespace + "/" + p.Name}, nil
}

// text returns the content of the file, which may be a pipe.
func (o *options) text(ctx context.Context) ([]byte, error) {
	if o.file == "-" {
		return atomicfile.ReadAll(atomicfile.NewStream(ctx, o.stdin), podjson.MaxPod)
	}
	file, err := atomicfile.OpenStream(ctx, o.file)
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil { // without the path, which the caller adds
			err = cause
		}
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return atomicfile.ReadAll(file, podjson.MaxPod)
}

// addMetadata returns the text of a pod with fields added to its metadata. text must not have
// duplicate fields.
func addMetadata(text []byte, fill map[string]string) ([]byte, error) {
	whole := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	metadata := map[string]json.RawMessage{}
	if of := whole["metadata"]; of != nil {
		if err := json.Unmarshal(of, &metadata); err != nil {
			return nil, err
		}
	}
	for field, value := range fill {
		metadata[field], _ = json.Marshal(value) // cannot fail
	}
	var err error
	if whole["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(whole)
}
