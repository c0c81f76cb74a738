// Package admit is jettison admit: it asks the agent whether its node takes a pod.
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

// ErrRefused: the node does not take the pod. The answer was printed.
var ErrRefused = errors.New("the pod is refused")

// preemptLimit is for an answer that waits for others to die. The agent answers within 60 s.
const preemptLimit = 65 * time.Second

// options of run.
type options struct {
	file    string // of the pod, YAML or JSON; "-": stdin
	stdin   *os.File
	socket  string // the agent's
	preempt bool   // have others killed for it, where the pod is critical and there is no room
	format  output.Format
}

// run asks once and prints the answer; a refusal is ErrRefused. A field that the agent does not
// know is named on stderr.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) error {
	p, err := o.read(ctx)
	if err != nil {
		return fmt.Errorf("admit: %s: %w", o.file, err)
	}
	client := api.Options{Socket: o.socket}
	if o.preempt {
		client.Limit = preemptLimit
	}
	c := api.New(client)
	ask := c.Admit
	if o.preempt {
		ask = c.Preempt
	}
	answer, err := ask(ctx, p.text)
	if err != nil {
		return err
	}
	for _, field := range answer.Unknown {
		fmt.Fprintf(stderr, "jettison: admit: %s: unknown field %q: it was not asked about\n", o.file,
			field)
	}
	if o.format.Data() {
		err = o.format.Encode(stdout, answer, false)
	} else if answer.Admit {
		_, err = fmt.Fprintf(stdout, "%s is admitted\n", p.name)
	} else {
		_, err = fmt.Fprintf(stdout, "%s is refused: %s: %s\n", p.name, answer.Reason,
			output.OneLine(answer.Message))
	}
	if err == nil && !answer.Admit {
		err = ErrRefused
	}
	return err
}

// asking is a pod as the agent takes it.
type asking struct {
	text json.RawMessage
	name string // with its namespace
}

// read reads the file, and fills in what a person leaves out who writes one by hand. A UID that
// nobody else has makes it a new pod, which asks for room beside all that are there.
func (o *options) read(ctx context.Context) (*asking, error) {
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
	p, unknown, err := podjson.Asking(text)
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
			return nil, errors.New("metadata.uid: missing: --preempt wants the UID by which the runtime " +
				"or a static manifest has the pod")
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
	if text, err = filled(text, fill); err != nil {
		return nil, err
	}
	return &asking{text: text, name: p.Namespace + "/" + p.Name}, nil
}

// text is what the file holds, which may be a pipe.
func (o *options) text(ctx context.Context) ([]byte, error) {
	if o.file == "-" {
		return atomicfile.ReadAll(atomicfile.NewStream(ctx, o.stdin), podjson.MaxPod)
	}
	file, err := atomicfile.OpenStream(ctx, o.file)
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil { // which has no path, for it was named already
			err = cause
		}
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return atomicfile.ReadAll(file, podjson.MaxPod)
}

// filled is the text of a pod that has a name, with fields added to its metadata. No field of it is
// there twice.
func filled(text []byte, fill map[string]string) ([]byte, error) {
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
