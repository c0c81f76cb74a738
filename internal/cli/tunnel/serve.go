package tunnel

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"jettison/api"
)

// maxSilence is the time without a frame after which the other end must answer a ping, and the time
// for that answer. The kubelet keeps a connection without traffic for hours.
const maxSilence = 15 * time.Second

// Serve serves HTTP/2 requests from in on out, and forwards them to the agent's socket. It returns
// when in ends, the other end is silent, or ctx ends. It closes in and out.
func Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser, socket string) {
	conn := newStream(in, out)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	quiet := log.New(io.Discard, "", 0)
	server := &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host },
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "unix", socket)
				},
				DisableKeepAlives: true, DisableCompression: true,
			},
			FlushInterval: -1, // events arrive one by one
			ErrorLog:      quiet,
			ErrorHandler:  badGateway,
		},
		Protocols: http2Only(),
		HTTP2:     &http.HTTP2Config{SendPingTimeout: maxSilence, PingTimeout: maxSilence},
		ErrorLog:  quiet,
	}
	_ = server.Serve(&single{conn: conn}) // the end of the connection is the only error
}

// badGateway reports that the agent does not answer.
func badGateway(w http.ResponseWriter, _ *http.Request, err error) {
	w.WriteHeader(http.StatusBadGateway)
	// an error means that the other end has disconnected
	_ = json.NewEncoder(w).Encode(api.ErrorAnswer{Error: "agent unreachable: " + err.Error()})
}

// http2Only returns the protocols of both ends.
func http2Only() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// single is a listener with one connection. It ends with the connection.
type single struct {
	conn     *stream
	accepted bool
}

// Accept returns the connection. The second call waits for its end.
func (s *single) Accept() (net.Conn, error) {
	if s.accepted {
		<-s.conn.closed
		return nil, net.ErrClosed
	}
	s.accepted = true
	return s.conn, nil
}

// Close closes the connection.
func (s *single) Close() error { return s.conn.Close() }

// Addr returns the address of the connection.
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }
