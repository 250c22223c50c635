//! Sends batches of images over Arrow Flight, from one process to another one on loopback. Prints the
//! rate of the connection and the processor time of the receiver.
//!
//! usage: flight [BATCHES]
//!
//! The receiver decodes each batch and copies its rows to memory that it keeps, as a loader does.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use arrow_schema::{DataType, Field, Schema};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming, async_trait};

/// Rows of a batch, and bytes of a row: an image of 224x224 pixels.
const ROWS: usize = 64;
const ROW_BYTES: usize = 3 * 224 * 224;

/// Bytes that may be on the way before the receiver confirms them.
const WINDOW: u32 = 8 << 20;

/// Batches that are received before the measurement.
const WARM_UP: usize = 20;

/// Clock ticks per second of `/proc`.
const TICKS: f64 = 100.0;

type Failure = Box<dyn Error>;
type Reply<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // One thread, as a connection of a feeder has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    match arguments.first().map(String::as_str) {
        Some("serve") => runtime.block_on(serve(arguments.get(1).map(String::as_str))),
        batches => {
            let batches = batches.map_or(Ok(300), str::parse)?;
            for encrypt in [false, true, false, true] {
                let mut server = Sender::start(encrypt)?;
                let outcome = runtime.block_on(receive(&server, batches));
                server.process.kill()?;
                server.process.wait()?;
                println!("{}", outcome?);
            }
            Ok(())
        }
    }
}

/// The process that sends.
struct Sender {
    process: Child,
    address: SocketAddr,
    /// Certificate in PEM format, for an encrypted connection.
    certificate: Option<String>,
}

impl Sender {
    fn start(encrypt: bool) -> Result<Sender, Failure> {
        let folder = std::env::temp_dir().join(format!("flight-{}", std::process::id()));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").stdout(Stdio::piped());
        let mut certificate = None;
        if encrypt {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("certificate"), made.cert.pem())?;
            fs::write(folder.join("key"), made.signing_key.serialize_pem())?;
            command.arg(&folder);
            certificate = Some(made.cert.pem());
        }
        let mut process = command.spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().ok_or("no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        if encrypt {
            fs::remove_dir_all(folder)?;
        }
        Ok(Sender {
            process,
            address: line.trim().parse()?,
            certificate,
        })
    }
}

async fn serve(folder: Option<&str>) -> Result<(), Failure> {
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?.with_nodelay(Some(true));
    let mut server = Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(Some((1 << 24) - 1));
    if let Some(folder) = folder {
        let read = |name: &str| fs::read(format!("{folder}/{name}"));
        let identity = Identity::from_pem(read("certificate")?, read("key")?);
        server = server.tls_config(ServerTlsConfig::new().identity(identity))?;
    }
    println!("{}", incoming.local_addr()?);
    let service = FlightServiceServer::new(Batches(batch()?));
    let service = service.max_encoding_message_size(usize::MAX);
    Ok(server
        .add_service(service)
        .serve_with_incoming(incoming)
        .await?)
}

/// Returns the line of results.
async fn receive(sender: &Sender, batches: usize) -> Result<String, Failure> {
    let scheme = match sender.certificate {
        Some(_) => "https",
        None => "http",
    };
    let url = format!("{scheme}://localhost:{}", sender.address.port());
    let mut endpoint = Endpoint::from_shared(url)?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    if let Some(certificate) = &sender.certificate {
        let trusted = Certificate::from_pem(certificate);
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(trusted))?;
    }
    let client = FlightServiceClient::new(endpoint.connect().await?);
    let mut client = client.max_decoding_message_size(usize::MAX);
    let mut memory = vec![0; ROWS * ROW_BYTES];
    take(&mut client, WARM_UP, &mut memory).await?;
    let (begun, cpu_s) = (Instant::now(), processor_s()?);
    take(&mut client, batches, &mut memory).await?;
    let (s, cpu_s) = (begun.elapsed().as_secs_f64(), processor_s()? - cpu_s);
    let gigabytes = (batches * memory.len()) as f64 / 1e9;
    Ok(format!(
        "{}: {:.2} GB/s, {:.2} s of the receiver's processors per GB",
        if scheme == "https" {
            "encrypted"
        } else {
            "plain"
        },
        gigabytes / s,
        cpu_s / gigabytes
    ))
}

async fn take(
    client: &mut FlightServiceClient<tonic::transport::Channel>,
    batches: usize,
    memory: &mut [u8],
) -> Result<(), Failure> {
    let ticket = Ticket {
        ticket: batches.to_string().into(),
    };
    let reply = client.do_get(ticket).await?.into_inner();
    let mut found = FlightRecordBatchStream::new_from_flight_data(reply.map_err(Into::into));
    while let Some(batch) = found.next().await {
        let batch = batch?;
        let images = batch.column(0).as_any();
        let images = images.downcast_ref::<FixedSizeBinaryArray>();
        memory.copy_from_slice(images.ok_or("no images")?.value_data());
    }
    Ok(())
}

/// Returns the processor time of this process.
fn processor_s() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in brackets, may have blanks.
    let (_, numbers) = text.rsplit_once(')').ok_or("no name")?;
    let ticks = numbers.split_whitespace().skip(11).take(2);
    let ticks: Result<Vec<f64>, _> = ticks.map(str::parse).collect();
    Ok(ticks?.iter().sum::<f64>() / TICKS)
}

fn batch() -> Result<RecordBatch, Failure> {
    let row = i32::try_from(ROW_BYTES)?;
    let bytes = (0..ROWS * ROW_BYTES).map(|n| n.wrapping_mul(0x9E37_79B1) as u8);
    let images = FixedSizeBinaryArray::try_new(row, Buffer::from_iter(bytes), None)?;
    let labels = Int64Array::from_iter_values(0..ROWS as i64);
    let schema = Schema::new(vec![
        Field::new("image", DataType::FixedSizeBinary(row), false),
        Field::new("label", DataType::Int64, false),
    ]);
    let columns: Vec<ArrayRef> = vec![Arc::new(images), Arc::new(labels)];
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Sends the same batch as often as the ticket says.
struct Batches(RecordBatch);

fn reject_call<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("only batches"))
}

#[async_trait]
impl FlightService for Batches {
    type HandshakeStream = Reply<HandshakeResponse>;
    type ListFlightsStream = Reply<FlightInfo>;
    type DoGetStream = Reply<FlightData>;
    type DoPutStream = Reply<PutResult>;
    type DoActionStream = Reply<arrow_flight::Result>;
    type ListActionsStream = Reply<ActionType>;
    type DoExchangeStream = Reply<FlightData>;

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        let ticket = request.into_inner().ticket;
        let count = std::str::from_utf8(&ticket)
            .ok()
            .and_then(|text| text.parse().ok());
        let count: usize = count.ok_or_else(|| Status::invalid_argument("no number"))?;
        let batch = self.0.clone();
        let batches = stream::iter((0..count).map(move |_| Ok(batch.clone())));
        let encoder = FlightDataEncoderBuilder::new().with_max_flight_data_size(usize::MAX);
        let encoded = encoder.build(batches).map_err(Status::from);
        Ok(Response::new(Box::pin(encoded)))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        reject_call()
    }

    async fn list_flights(
        &self,
        _: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        reject_call()
    }

    async fn get_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        reject_call()
    }

    async fn poll_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        reject_call()
    }

    async fn get_schema(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        reject_call()
    }

    async fn do_put(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        reject_call()
    }

    async fn do_action(
        &self,
        _: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        reject_call()
    }

    async fn list_actions(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        reject_call()
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        reject_call()
    }
}
