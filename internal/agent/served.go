package agent

import (
	"cmp"
	"fmt"

	"jettison/cgroup"
	"jettison/internal/agent/admission"
	"jettison/internal/agent/nodestats"
	"jettison/internal/agent/serve/remote"
	"jettison/internal/node/socketpath"
	"jettison/stats/read"
)

// stats looks at the node and its pods for those who ask, through a reader of its own.
func (b *builder) stats() *nodestats.Taker {
	o := b.o
	mount := b.s.FS.Mount()
	b.taker = nodestats.New(nodestats.Options{
		Node: cmp.Or(o.Config.HostnameOverride, admission.Hostname(cmp.Or(o.ProcMount, "/proc"))),
		Open: func() (*read.Reader, func(), error) {
			fs, err := cgroup.OpenTree(mount) // which was found to be one at the start
			if err != nil {
				return nil, nil, err
			}
			proc, err := read.OpenProc(o.ProcMount)
			if err != nil {
				fs.Close()
				return nil, nil, err
			}
			reader, err := read.NewReader(fs, proc, o.Config.CgroupRoot)
			if err != nil {
				proc.Close()
				fs.Close()
				return nil, nil, err
			}
			return reader, func() { proc.Close(); fs.Close() }, nil
		},
	})
	b.closing(b.taker.Close)
	return b.taker
}

// serve listens on the network, where the configuration says so: now, or when the address is free.
func (b *builder) serve() error {
	c := b.o.Config
	if c.Listen == "" {
		return nil
	}
	server, err := remote.ListenLate(remote.Options{
		Listen: c.Listen, TLSCertFile: c.TLSCertFile, TLSPrivateKeyFile: c.TLSPrivateKeyFile,
		BearerTokenFile: c.BearerTokenFile,
		Reads:           b.endpoints,
	}, b.o.Log)
	if err != nil {
		return err
	}
	b.closing(server.Close)
	return nil
}

// leave leaves where the agent listens for probes, whose configuration may say something else
// before the agent starts anew.
func (b *builder) leave() {
	if b.keeper.Foreign() != nil { // that one has left it
		return
	}
	if err := socketpath.Leave(b.o.Config.StateDir, b.o.Config.Socket); err != nil {
		b.log.Warn("not as it should be", "error", fmt.Errorf("leave where the agent listens: %w", err))
	}
}
