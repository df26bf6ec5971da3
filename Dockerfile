# Loadline in a container: docs/running.md says how to use it.
#
#   docker build -t loadline .
#
# Needs BuildKit, which is Docker's default builder: the compiler's work is kept between builds in cache mounts,
# so that a change of ours does not build every dependency again.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --bin loadline \
    && install -D target/release/loadline /out/loadline

# The same Debian that it was built on, so that the C library is the same. It has a shell and `cat`, which the
# health check and whoever wants the first token need; an image without them would save some 40 MB.
FROM debian:bookworm-slim
# Certificates are for webhooks to https addresses.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 -m 0700 /data
COPY --from=build /out/loadline /usr/local/bin/loadline

# In a container loopback is nobody else's, so it must listen beyond it, and so everybody needs a token: the program
# refuses to start otherwise. The name `loadline` is what other containers call this one; whoever calls it by another
# name is answered 403 until that name is in the list.
ENV LOADLINE_SERVER_LISTEN=0.0.0.0:11435 \
    LOADLINE_SERVER_ALLOWED_HOSTS='["loadline"]' \
    LOADLINE_AUTH_REQUIRED=true \
    LOADLINE_UPSTREAM_URL=http://ollama:11434 \
    LOADLINE_STORE_DATA_DIR=/data \
    LOADLINE_LOG_FORMAT=json

# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
VOLUME /data
EXPOSE 11435

# The image has no curl, and the shell can do this much. It asks whether the program answers, not whether Ollama
# does (/loadline/ready): restarting Loadline would not bring Ollama back.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${LOADLINE_SERVER_LISTEN##*:} && printf 'GET /loadline/health HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r -t 4 line <&3 && [[ $line == *' 200 '* ]]"]

ENTRYPOINT ["loadline"]
CMD ["serve"]
