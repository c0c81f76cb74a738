// Package snapshot implements jettison snapshot: it writes one archive for remote diagnosis of a
// node. The archive contains pod names, like records and state, and no secrets: no environment
// variables, no files of pods, and no configuration values that may be secrets.
//
//	command.go   Command: jettison snapshot
//	snapshot.go  write: the archive
//	redact.go    the configuration without secrets
package snapshot

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/cli/snapshot/nodefiles"
	"jettison/internal/node/observe"
	"jettison/internal/node/records"
	"jettison/internal/node/sources"
)

// options of write.
type options struct {
	look      observe.Options // where to read the node
	node      string
	version   string
	configErr error // the configuration is invalid and look holds only its readable fields; nil: valid
}

// part is one file of the archive.
type part struct {
	name string
	make func(context.Context) ([]byte, error)
}

// write writes the archive, a compressed tar. Parts that are unavailable are left out; missing has
// a line for each, which is also in errors.txt.
func write(ctx context.Context, o options, to io.Writer) (missing []string, err error) {
	zip := gzip.NewWriter(to)
	a := archive{Writer: tar.NewWriter(zip), now: time.Now()}
	if o.configErr != nil {
		missing = append(missing, "config.yaml has only the readable fields of an invalid configuration: "+
			output.OneLine(o.configErr.Error()))
	}
	for _, p := range o.parts() {
		text, err := p.make(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			missing = append(missing, p.name+": "+output.OneLine(err.Error()))
		}
		if len(text) > 0 {
			a.add(p.name, text)
		}
	}
	if err := o.tree(ctx, &a); err != nil && a.err == nil && ctx.Err() == nil {
		missing = append(missing, "tree: "+output.OneLine(err.Error()))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	a.add("errors.txt", []byte(strings.Join(append(missing, ""), "\n")))
	if err := cmp.Or(a.err, errors.Join(a.Close(), zip.Close())); err != nil {
		return missing, fmt.Errorf("snapshot: %w", err)
	}
	return missing, nil
}

// archive is the tar that is written.
type archive struct {
	*tar.Writer
	now time.Time
	err error // first write error; nothing is written after it
}

func (a *archive) add(name string, text []byte) {
	if a.err != nil {
		return
	}
	head := &tar.Header{Name: "jettison/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: a.now}
	if a.err = a.WriteHeader(head); a.err == nil {
		_, a.err = a.Write(text)
	}
}

func (o options) parts() []part {
	client := api.New(api.Options{Socket: o.look.Config.Socket, Limit: queryTimeout})
	return []part{
		{"versions.txt", o.versions},
		{"config.yaml", func(context.Context) ([]byte, error) { return redacted(o.look.Config) }},
		{"state.json", func(ctx context.Context) ([]byte, error) { return query(ctx, client.State) }},
		{"outlook.json", func(ctx context.Context) ([]byte, error) { return query(ctx, client.Outlook) }},
		{"events.jsonl", func(ctx context.Context) ([]byte, error) { return events(ctx, client) }},
		{"records.jsonl", o.records},
	}
}

// queryTimeout bounds one query to the agent or the runtime.
const queryTimeout = 5 * time.Second

// query returns an answer of the agent as JSON.
func query[T any](ctx context.Context, get func(context.Context) (T, error)) ([]byte, error) {
	v, err := get(ctx)
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(v, "", "  ")
}

// events returns the events that the agent keeps, one JSON object a line.
func events(ctx context.Context, client *api.Client) ([]byte, error) {
	var out bytes.Buffer
	err := client.Events(ctx, api.EventOptions{},
		func(e api.Event) error { return output.AsJSON.Encode(&out, e, true) })
	return out.Bytes(), err
}

// versions returns the versions of jettison, kernel and runtime.
func (o options) versions(ctx context.Context) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "time %s\nnode %s\njettison %s (%s, %s/%s)\n", output.Time(time.Now()), o.node,
		o.version,
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		fmt.Fprintf(&out, "kernel %s\n", unix.ByteSliceToString(name.Release[:]))
	}
	fmt.Fprintf(&out, "configuration %s\n", o.look.Config.From)
	client, err := sources.Dial(o.look.Options)
	if err != nil {
		return out.Bytes(), err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	v, err := client.Version(ctx)
	if err != nil {
		return out.Bytes(), fmt.Errorf("read the runtime's version: %w", err)
	}
	fmt.Fprintf(&out, "runtime %s %s\n", v.Name, v.Version)
	return out.Bytes(), nil
}

// records returns the records of evictions, one JSON object a line.
func (o options) records(context.Context) ([]byte, error) {
	if o.look.Config.StateDir == "" {
		return nil, errors.New("stateDir is empty in the configuration, so no records exist")
	}
	list, err := records.Read(records.Path(o.look.Config.StateDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for i := range list.Records {
		if err := output.AsJSON.Encode(&out, &list.Records[i], true); err != nil {
			return out.Bytes(), err
		}
	}
	return out.Bytes(), nil
}

// tree adds the kernel files that the agent reads: numbers and IDs. It holds one file at a time in
// memory, because it may run in the agent's container and use its memory.
func (o options) tree(ctx context.Context, a *archive) error {
	fs, err := sources.OpenCgroups(o.look.Options)
	if err != nil {
		return err
	}
	defer fs.Close()
	return nodefiles.Walk(nodefiles.Options{
		Cgroups: fs, CgroupRoot: o.look.Config.CgroupRoot, ProcMount: o.look.ProcMount,
		SysMount: o.look.SysMount(),
	}, func(name string, content []byte) error {
		a.add("tree/"+name, content)
		return cmp.Or(a.err, ctx.Err())
	})
}

// create creates the archive's file, readable by its owner only. It returns an error if the file
// exists.
func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("snapshot: %w: name a new file", err)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return f, nil
}
