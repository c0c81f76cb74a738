package remote

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// retryInterval is the time between two attempts to listen.
const retryInterval = 10 * time.Second

// Late is a server that retries until its address is available. Another process may use the port,
// or the network of the address may not be up yet; the agent guards the node meanwhile.
type Late struct {
	server *Server
	ended  chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

// ListenLate listens now, or later if the address is not available yet. It returns errors that a
// retry cannot fix: those of the options and of the files.
func ListenLate(o Options, log *slog.Logger) (*Late, error) {
	return listenLate(o, log, retryInterval)
}

func listenLate(o Options, log *slog.Logger, interval time.Duration) (*Late, error) {
	l := &Late{ended: make(chan struct{})}
	if temporary, err := l.listen(o, log); err == nil || !temporary {
		return l, err
	} else {
		//log: The address of listen is in use, or does not exist yet. The agent runs without the
		//  network listener and retries.
		//do: Stop the process that uses the port, or correct listen in the configuration.
		log.Warn("network listener not started, retrying", "error", err, "every", interval)
	}
	l.done.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-l.ended:
				return
			case <-tick.C:
			}
			if _, err := l.listen(o, log); err == nil {
				return
			}
		}
	})
	return l, nil
}

// listen tries once. temporary: a later attempt may succeed.
func (l *Late) listen(o Options, log *slog.Logger) (temporary bool, err error) {
	server, err := Listen(o)
	if err != nil {
		return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL), err
	}
	l.server = server
	//log: The agent serves metrics, health, state and events on the network at the address. The
	//  keys tls and token show whether TLS and a bearer token are configured.
	log.Info("listening", "address", server.Address(), "tls", o.TLSCertFile != "",
		"token", o.BearerTokenFile != "")
	return false, nil
}

// Close ends the retries, closes the server and waits for its requests. It returns an error if a
// request does not end.
func (l *Late) Close() error {
	l.once.Do(func() { close(l.ended) })
	l.done.Wait()
	if l.server == nil {
		return nil
	}
	return l.server.Close()
}
