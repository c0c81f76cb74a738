package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/kubectl/fleet"
	"jettison/internal/kubectl/kube"
	"jettison/internal/kubectl/printer"
)

// Limits.
const (
	parallel   = 32      // commands in pods at a time
	maxRecord  = 1 << 20 // bytes of one record, as in package api
	maxRecords = 100_000 // of one node
	maxStderr  = 2 << 10 // bytes of an agent's standard error
)

type options struct {
	client     *kube.Client
	selection  kube.Selection
	format     printer.Format
	since      time.Time
	timeout    time.Duration // of each node
	eventsOnly bool
}

func (o *options) run(ctx context.Context, stdout *terminal.Screen) error {
	r, err := o.collect(ctx)
	if err != nil {
		return err
	}
	if o.format.Table {
		return stdout.Print(lines(r, stdout.Width(), o.format.Wide)...)
	}
	return o.format.Data(stdout, r, nil)
}

// answer is the answer of one node.
type answer struct {
	node      string
	evictions []fleet.Eviction
	warning   string
	err       error
}

// collect reads the evictions of the selected nodes.
func (o *options) collect(ctx context.Context) (*fleet.Report, error) {
	objects, err := o.client.List(ctx, o.selection)
	if err != nil {
		return nil, err
	}
	r := &fleet.Report{Since: o.since, Until: time.Now(), Nodes: len(objects.Nodes),
		Evictions: []fleet.Eviction{}, Warnings: map[string]string{}}
	fromEvents := map[string]bool{} // nodes whose evictions are from events
	for _, a := range o.askAll(ctx, objects) {
		switch {
		case a.err != nil:
			fromEvents[a.node] = true
			r.AddUnanswered(a.node, output.OneLine(a.err.Error()))
		default:
			r.Answered++
			r.Evictions = append(r.Evictions, a.evictions...)
			if a.warning != "" {
				r.Warnings[a.node] = a.warning
			}
		}
	}
	for _, e := range objects.Events {
		got, ok := fleet.FromEvent(e)
		if ok && fromEvents[got.Node] && !got.Time.Before(o.since) {
			r.Evictions = append(r.Evictions, got)
		}
	}
	if why := objects.Unknown[fleet.Events]; why != "" && len(fromEvents) > 0 {
		r.Warnings["events"] = "cannot list events: " + why
	}
	r.Count()
	return r, ctx.Err()
}

// askAll reads the records of all nodes, a limited number at a time.
func (o *options) askAll(ctx context.Context, objects *fleet.Objects) []answer {
	pods := map[string][]*v1.Pod{}
	for _, p := range objects.Agents {
		pods[p.Spec.NodeName] = append(pods[p.Spec.NodeName], p)
	}
	out := make([]answer, len(objects.Nodes))
	slots := make(chan struct{}, parallel)
	var asked sync.WaitGroup
	for i, n := range objects.Nodes {
		out[i].node = n.Name
		pod, state := fleet.Running(pods[n.Name])
		switch {
		case o.eventsOnly:
			out[i].err = errors.New("not queried: --events-only")
		case objects.Unknown[fleet.Agents] != "":
			out[i].err = errors.New("cannot list the agents' pods: " + objects.Unknown[fleet.Agents])
		case pod == nil && state != "":
			out[i].err = errors.New("agent not running: " + state)
		case pod == nil:
			out[i].err = errors.New("no pod of the agent in namespace " + o.client.Namespace)
		default:
			slots <- struct{}{}
			asked.Go(func() {
				defer func() { <-slots }()
				out[i].evictions, out[i].warning, out[i].err = o.ask(ctx, n.Name, pod.Name)
			})
		}
	}
	asked.Wait()
	return out
}

// ask reads the records of one node.
func (o *options) ask(ctx context.Context, node, pod string) ([]fleet.Eviction, string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("no answer within %v", o.timeout))
	defer cancel()
	read := records{node: node}
	var complaint head
	code, err := o.client.Exec(ctx, pod, kube.Command{Stdout: &read, Stderr: &complaint,
		Args: []string{"records", "--since", o.since.UTC().Format(time.RFC3339), "-o", "jsonl"}})
	warning := output.OneLine(complaint.String())
	switch {
	case read.err != nil:
		return nil, "", read.err
	case err != nil:
		// one reason for all nodes: without the name of the pod
		return nil, "", errors.New(strings.TrimPrefix(err.Error(),
			"exec in pod "+o.client.Namespace+"/"+pod+": "))
	case code != 0:
		return nil, "", fmt.Errorf("jettison records: exit code %d: %s", code, warning)
	}
	return read.found, warning, nil
}

// records decodes the output of jettison records -o jsonl as it arrives.
type records struct {
	node  string
	found []fleet.Eviction
	rest  []byte // an incomplete line
	err   error
}

// Write decodes the complete lines.
func (r *records) Write(b []byte) (int, error) {
	r.rest = append(r.rest, b...)
	for r.err == nil {
		line, rest, complete := bytes.Cut(r.rest, []byte("\n"))
		if !complete {
			break
		}
		r.rest = rest
		r.line(line)
	}
	if r.err == nil && len(r.rest) > maxRecord {
		r.err = fmt.Errorf("jettison records: a record is larger than %d bytes", maxRecord)
	}
	if r.err != nil {
		return 0, r.err
	}
	return len(b), nil
}

func (r *records) line(text []byte) {
	var one api.Record
	switch err := json.Unmarshal(text, &one); {
	case err != nil:
		r.err = fmt.Errorf("jettison records: decode %.100q: %w", text, err)
	case len(r.found) == maxRecords:
		r.err = fmt.Errorf("jettison records: more than %d records: use a shorter --since", maxRecords)
	default:
		if e, ok := fleet.FromRecord(r.node, &one); ok {
			r.found = append(r.found, e)
		}
	}
}

// head stores the beginning of an output.
type head struct{ bytes.Buffer }

// Write never fails.
func (h *head) Write(b []byte) (int, error) {
	h.Buffer.Write(b[:min(len(b), maxStderr-h.Len())])
	return len(b), nil
}
