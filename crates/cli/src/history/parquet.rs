//! The rows of a table as Parquet, by the crate `parquet`
//! (docs/adr/0014-pictures-and-tables-by-features.md).

use std::io::Write;
use std::sync::Arc;

use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;

use super::SavedFigure;
use crate::failure::Failure;

/// The columns of `--csv`, with types.
const SCHEMA: &str = "message figures {
    REQUIRED INT64 run;
    REQUIRED INT64 started_at (TIMESTAMP(MILLIS, true));
    REQUIRED BYTE_ARRAY path (STRING);
    REQUIRED BYTE_ARRAY workload (STRING);
    REQUIRED BYTE_ARRAY detail (STRING);
    REQUIRED BYTE_ARRAY labels (STRING);
    OPTIONAL BYTE_ARRAY bottleneck (STRING);
    REQUIRED BYTE_ARRAY metric (STRING);
    REQUIRED DOUBLE value;
}";
/// Rows that are written at once.
const GROUP: usize = 1 << 16;

pub(super) fn is_built() -> Result<(), Failure> {
    Ok(())
}

pub(super) fn write(to: impl Write + Send, rows: &[SavedFigure<'_>]) -> anyhow::Result<()> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut file = SerializedFileWriter::new(to, schema, Arc::default())?;
    for rows in rows.chunks(GROUP) {
        let mut group = file.next_row_group()?;
        put::<Int64Type, _>(&mut group, rows, |row| Some(row.run.id))?;
        put::<Int64Type, _>(&mut group, rows, |row| Some(row.run.at_s as i64 * 1000))?;
        text(&mut group, rows, |row| Some(&row.run.path))?;
        text(&mut group, rows, |row| Some(&row.run.workload))?;
        text(&mut group, rows, |row| Some(&row.run.detail))?;
        text(&mut group, rows, |row| Some(&row.run.labels))?;
        text(&mut group, rows, |row| row.run.cause.as_deref())?;
        text(&mut group, rows, |row| Some(&row.metric))?;
        put::<DoubleType, _>(&mut group, rows, |row| Some(row.value))?;
        group.close()?;
    }
    file.close()?;
    Ok(())
}

fn text<'a, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &'a [SavedFigure<'_>],
    cell: impl Fn(&'a SavedFigure<'_>) -> Option<&'a str>,
) -> Result<(), ParquetError> {
    put::<ByteArrayType, _>(group, rows, |row| cell(row).map(ByteArray::from))
}

/// The next column.
fn put<'a, T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &'a [SavedFigure<'_>],
    cell: impl Fn(&'a SavedFigure<'_>) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let cells: Vec<Option<T::T>> = rows.iter().map(cell).collect();
    // 1 where there is a value; a required column does not look at it.
    let is_there: Vec<i16> = cells.iter().map(|cell| cell.is_some().into()).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    let mut column = group
        .next_column()?
        .expect("the schema has one for each call");
    column
        .typed::<T>()
        .write_batch(&values, Some(&is_there), None)?;
    column.close()
}
